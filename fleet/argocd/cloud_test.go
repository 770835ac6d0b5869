package argocd

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
	"k8s.io/client-go/tools/clientcmd/api"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

const aGUID = "7d8cdf74-0a5f-4a5e-8f0c-2b3d4e5f6a7b"

// cloudCluster is the cluster of an environment with an identity of a cloud.
func cloudCluster(cloud *fleet.CloudIdentity) fleet.Object {
	o := clusterObject(prodEU, exampleServer)
	o.Cluster.Cloud, o.Cluster.Credential = cloud, fleet.CredentialSource{}
	return o
}

// Argo CD's own code reads the rendered Secret, and argocd-k8s-auth accepts its arguments.
func TestArgoCDAuthenticatesWithTheIdentityOfACloud(t *testing.T) {
	programs := []map[string][]string{
		authCommands(t, ".", "github.com/argoproj/argo-cd/v2"),
		authCommands(t, "../../test/argocd/v3", "github.com/argoproj/argo-cd/v3")}
	const role = "arn:aws:iam::123456789012:role/argocd/prod-1"
	for name, c := range map[string]struct {
		cloud fleet.CloudIdentity
		args  []string
		env   map[string]string
	}{
		"eks": {fleet.CloudIdentity{EKS: &fleet.EKSIdentity{ClusterName: "prod-1"}},
			[]string{"aws", "--cluster-name", "prod-1"}, nil},
		"eks with a role": {fleet.CloudIdentity{EKS: &fleet.EKSIdentity{ClusterName: "prod-1",
			RoleARN: role}}, []string{"aws", "--cluster-name", "prod-1", "--role-arn", role}, nil},
		"gke": {fleet.CloudIdentity{GKE: &fleet.GKEIdentity{}}, []string{"gcp"}, nil},
		"aks": {fleet.CloudIdentity{AKS: &fleet.AKSIdentity{}}, []string{"azure"},
			map[string]string{"AAD_LOGIN_METHOD": "workloadidentity",
				"AAD_ENVIRONMENT_NAME": "AzurePublicCloud"}},
		"aks with a managed identity": {fleet.CloudIdentity{AKS: &fleet.AKSIdentity{
			Login: fleet.AKSManagedIdentity, ClientID: aGUID, TenantID: aGUID,
			Environment: fleet.AKSChina}}, []string{"azure"},
			map[string]string{"AAD_LOGIN_METHOD": "msi", "AZURE_CLIENT_ID": aGUID,
				"AZURE_TENANT_ID": aGUID, "AAD_ENVIRONMENT_NAME": "AzureChinaCloud"}},
	} {
		t.Run(name, func(t *testing.T) {
			row := rowOf(t, cloudCluster(&c.cloud), 1)
			w, err := prepare(row, fleet.Secret{}, mirror.Lease{Epoch: 1})
			if err != nil {
				t.Fatal(err)
			}
			raw, err := dataValue(child(w.tree, "data"), "config")
			if err != nil {
				t.Fatal(err)
			}
			cluster := v1alpha1.Cluster{Server: exampleServer}
			if err := json.Unmarshal(raw, &cluster.Config); err != nil {
				t.Fatal(err)
			}
			config, err := cluster.RawRestConfig()
			if err != nil {
				t.Fatal(err)
			}
			run := config.ExecProvider
			if run == nil || run.Command != "argocd-k8s-auth" || run.APIVersion !=
				"client.authentication.k8s.io/v1beta1" || !slices.Equal(run.Args, c.args) ||
				config.BearerToken != "" || config.Insecure {
				t.Fatalf("Argo CD would run %+v", run)
			}
			if got := variables(run.Env); !reflect.DeepEqual(got, c.env) {
				t.Errorf("with %v, want %v", got, c.env)
			}
			for _, known := range programs {
				accepts(t, known, run.Args)
			}
			if _, err := prepare(row, values("token", canary), mirror.Lease{}); err == nil {
				t.Error("a secret is written beside the identity")
			}
		})
	}
}

func variables(env []api.ExecEnvVar) map[string]string {
	var m map[string]string
	for _, v := range env {
		if m == nil {
			m = map[string]string{}
		}
		m[v.Name] = v.Value
	}
	return m
}

// accepts compares arguments with the commands and flags of argocd-k8s-auth.
func accepts(t *testing.T, commands map[string][]string, args []string) {
	t.Helper()
	flags, known := commands[args[0]]
	if !known {
		t.Fatalf("argocd-k8s-auth has no command %q: %v", args[0], commands)
	}
	for i := 1; i < len(args); i += 2 {
		name, isFlag := strings.CutPrefix(args[i], "--")
		if !isFlag || !slices.Contains(flags, name) || i+1 == len(args) {
			t.Errorf("argocd-k8s-auth %s has no flag %q: %q", args[0], args[i], flags)
		}
	}
}

// authCommands reads the commands of argocd-k8s-auth, each with its flags, from the source of an
// Argo CD that a module in dir requires.
func authCommands(t *testing.T, dir, module string) map[string][]string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module)
	list.Dir = dir
	root, err := list.Output()
	if err != nil {
		t.Fatal(module, err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(root)),
		"cmd/argocd-k8s-auth/commands/*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal("no source of argocd-k8s-auth", err)
	}
	commands := map[string][]string{}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		use := regexp.MustCompile(`Use:\s+"([a-z]+)"`).FindSubmatch(source)
		if use == nil {
			continue
		}
		flags := []string{}
		for _, f := range regexp.MustCompile(`StringVar\(&\w+, "([a-z-]+)"`).FindAllSubmatch(source,
			-1) {
			flags = append(flags, string(f[1]))
		}
		commands[string(use[1])] = flags
	}
	return commands
}

func TestNoTextOfACloudReachesArgoCDUnchecked(t *testing.T) {
	for name, cloud := range map[string]fleet.CloudIdentity{
		"none": {},
		"two": {GKE: &fleet.GKEIdentity{},
			EKS: &fleet.EKSIdentity{ClusterName: "prod-1"}},
		"a flag as a name": {EKS: &fleet.EKSIdentity{ClusterName: "--profile=other"}},
		"no name":          {EKS: &fleet.EKSIdentity{}},
		"a flag as a role": {EKS: &fleet.EKSIdentity{ClusterName: "a", RoleARN: "--profile"}},
		"a user for a role": {EKS: &fleet.EKSIdentity{ClusterName: "a",
			RoleARN: "arn:aws:iam::123456789012:user/x"}},
		"two lines":     {EKS: &fleet.EKSIdentity{ClusterName: "a\nb"}},
		"no UUID":       {AKS: &fleet.AKSIdentity{ClientID: "$(id)"}},
		"another login": {AKS: &fleet.AKSIdentity{Login: "spn"}},
		"another cloud": {AKS: &fleet.AKSIdentity{Environment: "https://evil.example.com"}},
	} {
		t.Run(name, func(t *testing.T) {
			if m, err := (Renderer{}).Render(engineSpec(), cloudCluster(&cloud)); err == nil {
				t.Errorf("rendered: %s", m.Body)
			}
		})
	}
}

// The token of a Cluster's environment is requested with the platform's credential, which must not
// be the tenant's.
func TestAClusterNeedsACredentialOfThePlatform(t *testing.T) {
	o := clusterObject(prodEU, exampleServer)
	account := fleet.AccountOf(prodEU)
	o.Cluster.ServiceAccount = &account
	for _, source := range []fleet.CredentialSource{{}, {Tenant: acme, Name: "prod-1"}} {
		o.Cluster.Credential = source
		if _, err := (Renderer{}).Render(engineSpec(), o); err == nil {
			t.Errorf("rendered with %+v", source)
		}
	}
	o.Cluster.Credential = fleet.CredentialSource{Folder: "environments", Name: "prod-1"}
	m, err := Renderer{}.Render(engineSpec(), o)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(m.Body); !strings.Contains(text, `"argosy.dev/service-account":`+
		`"argosy-tenant-acme/prod-eu"`) || strings.Contains(text,
		base64.StdEncoding.EncodeToString([]byte("bearerToken"))) {
		t.Error(text)
	}
}
