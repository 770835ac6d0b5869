{{- define "argosy-engine.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ include "argosy-engine.version" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "argosy-engine.version" -}}{{ default .Chart.AppVersion .Values.argocd.version }}{{- end -}}

{{/* A file of Argo CD's manifests of the version. */}}
{{- define "argosy-engine.file" -}}
{{- $version := include "argosy-engine.version" .root -}}
{{- $text := .root.Files.Get (printf "files/argocd/%s/%s" $version .path) -}}
{{- if not $text -}}
{{- $have := list -}}
{{- range $path, $_ := .root.Files.Glob "files/argocd/*/namespace-install.yaml" -}}{{- $have = append $have (index (splitList "/" $path) 2) -}}{{- end -}}
{{- fail (printf "this chart does not hold Argo CD %s; it holds: %s. Bring it in with charts/argosy-engine/argocd.sh %s" $version (default "none" ($have | join ", ")) $version) -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{- define "argosy-engine.openshift" -}}
{{- if or (.Values.global).openshift (.Capabilities.APIVersions.Has "route.openshift.io/v1") -}}true{{- end -}}
{{- end -}}

{{/* The image of a container in the manifests, with the registry and the digest of the values. Takes root, image and digest. */}}
{{- define "argosy-engine.image" -}}
{{- $name := .image -}}
{{- if not (contains "/" $name) -}}{{- $name = printf "library/%s" $name -}}{{- end -}}
{{- if not (regexMatch "^([^/]*[.:][^/]*|localhost)/" $name) -}}{{- $name = printf "docker.io/%s" $name -}}{{- end -}}
{{- with (.root.Values.global).imageRegistry -}}{{- $name = regexReplaceAll "^[^/]+" $name . -}}{{- end -}}
{{- with .digest -}}{{- $name = printf "%s@%s" (regexReplaceAll ":[^:/]+$" $name "") . -}}{{- end -}}
{{- $name -}}
{{- end -}}

{{/* The components of the pattern. */}}
{{- define "argosy-engine.components" -}}
{{- if eq .Values.pattern "full" }}[application-controller, metrics, repo-server, redis]{{ else }}[application-controller, metrics]{{ end -}}
{{- end -}}

{{/* The content of Argo CD's ConfigMaps, by name. */}}
{{- define "argosy-engine.data" -}}
{{- $cm := deepCopy .Values.argocd.settings -}}
{{- $_ := set $cm "application.resourceTrackingMethod" "annotation" -}}
{{- $_ := set $cm "installationID" (required "installationID is required: the engine's spec.argocd.installationID, unique in the fleet" .Values.installationID) -}}
{{- $_ := set $cm "admin.enabled" "false" -}}
{{- /* Tenants share the repo-server: docs/security.md. */ -}}
{{- $cm = merge $cm (dict "jsonnet.enable" "false" "helm.valuesFileSchemes" "") -}}
{{- $params := merge (deepCopy .Values.argocd.params) (dict "reposerver.enable.git.submodule" "false") -}}
{{- /* An unresponsive cluster occupies one processor per Application: docs/adr/0021. */ -}}
{{- $params = merge $params (dict "controller.status.processors" "100" "controller.operation.processors" "50" "reposerver.parallelism.limit" "20") -}}
{{- if eq .Values.pattern "controller" -}}
{{- $_ := required "hub.repoServer.existingTLSSecret is required with pattern: controller: the Secret argocd-repo-server-tls, whose ca.crt verifies the hub's certificate" .Values.hub.repoServer.existingTLSSecret -}}
{{- $_ := required "hub.redis.existingSecret is required with pattern: controller: the Secret argocd-redis with the password under auth" .Values.hub.redis.existingSecret -}}
{{- $_ := set $params "repo.server" (required "hub.repoServer.address is required with pattern: controller" .Values.hub.repoServer.address) -}}
{{- $_ := set $params "redis.server" (required "hub.redis.address is required with pattern: controller" .Values.hub.redis.address) -}}
{{- $_ := set $params "controller.repo.server.strict.tls" "true" -}}
{{- end -}}
{{- toYaml (dict "argocd-cm" $cm "argocd-cmd-params-cm" $params "argocd-tls-certs-cm" .Values.argocd.tlsCerts "argocd-rbac-cm" dict "argocd-gpg-keys-cm" dict "argocd-ssh-known-hosts-cm" dict) -}}
{{- end -}}

{{/* Git's settings for the repo-server, by file. */}}
{{- define "argosy-engine.git" -}}
{{- range list "gitconfig" "clones.gitconfig" "post-checkout" }}
{{ . }}: {{ $.Files.Get (printf "files/git/%s" .) | toJson }}
{{- end }}
{{- end -}}
