package fleet

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
)

// CheckServerURL reports why an API server's URL is refused, or nil. Each URL has one canonical
// form: https://host[:port], lower case, no default port, no path, query or user. Addresses that no
// tenant's cluster can have (metadata services, link-local, kubernetes.default.svc) are refused
// without exception. InternalServer reports those that the platform may except.
func CheckServerURL(raw string) error {
	if err := plainURL(raw); err != nil {
		return err
	}
	host, ok := strings.CutPrefix(raw, "https://")
	switch {
	case !ok:
		return errors.New("a cluster's server begins with https://")
	case strings.Contains(host, "@"):
		return errors.New(
			"a server URL must not carry a user or password; name a secret in credentialsRef")
	case strings.HasSuffix(host, "/") && strings.Count(host, "/") == 1:
		return errors.New("leave out the trailing slash")
	case strings.ContainsAny(host, "/?#"):
		return errors.New("a server URL has no path or query: https://host[:port]")
	}
	if err := checkHostPort(host, "443"); err != nil {
		return err
	}
	return neverACluster(hostOf(host))
}

// InternalServer returns the kind of internal address that a checked server URL contains ("loopback
// address", ...), or "". Fleet.clusterHosts may except such hosts one by one: exactly as written
// here, as host or host:port. Names are not resolved: the network has to refuse a name that
// resolves to such an address.
func InternalServer(raw string, clusterHosts []string, refusePrivate bool) string {
	authority := strings.TrimPrefix(raw, "https://")
	host := hostOf(authority)
	if slices.Contains(clusterHosts, authority) || slices.Contains(clusterHosts, host) {
		return ""
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.IsLoopback() {
			return "loopback address"
		}
		if refusePrivate && (ip.IsPrivate() || carrier.Contains(ip)) {
			return "address of a private network"
		}
		return ""
	}
	switch {
	case host == "localhost" || strings.HasSuffix(host, ".localhost"):
		return "loopback name"
	case !strings.Contains(host, "."):
		return "name without a domain, which is found by the control plane's own search domains"
	case strings.HasSuffix(host, ".svc") || strings.Contains(host, ".svc."):
		return "name of a Service in the control plane's own cluster"
	}
	return ""
}

// carrier is the address space that RFC 6598 shares between carriers. Clouds use it internally.
var carrier = netip.MustParsePrefix("100.64.0.0/10")

// engineGrant begins the address of an engine's own cluster, clusterGrant that of a Cluster.
const (
	engineGrant  = "engine:"
	clusterGrant = "cluster:"
)

// Address identifies the cluster: the URL of its API server, "cluster:<name>" for a Cluster of the
// platform, or "engine:<name>" for the cluster that an engine's Argo CD runs on.
func (c *ClusterSpec) Address() string {
	switch {
	case c.Engine != "":
		return engineGrant + string(c.Engine)
	case c.Ref != "":
		return clusterGrant + string(c.Ref)
	}
	return c.Server
}

// OnEngine is the engine on whose own cluster the environment is, or "".
func (s *EnvironmentSpec) OnEngine() EngineName {
	if s.Cluster == nil {
		return ""
	}
	return s.Cluster.Engine
}

// URL is the URL of the API server as the engine reaches it; platform is the Cluster that Ref
// names.
func (c *ClusterSpec) URL(platform *PlatformClusterSpec) string {
	switch {
	case c.Engine != "":
		return InClusterServer
	case platform != nil:
		return platform.Server
	}
	return c.Server
}

// CheckServerGrant reports why an entry of Tenant.clusters is refused, or nil.
func CheckServerGrant(grant string) error {
	for _, prefix := range []string{engineGrant, clusterGrant} {
		if name, is := strings.CutPrefix(grant, prefix); is {
			return ValidateName(name)
		}
	}
	domain, below := strings.CutPrefix(grant, ".")
	if !below {
		return CheckServerURL(grant)
	}
	if err := plainURL(domain); err != nil {
		return err
	}
	if !strings.Contains(domain, ".") {
		return errors.New("a domain has two labels at least, e.g. .clusters.example.com")
	}
	if _, err := netip.ParseAddr(domain); err == nil {
		return errors.New("what begins with a dot is a domain, and an address has nothing below it")
	}
	return checkHost(domain)
}

// ServerGrants are the entries of Tenant.clusters that grant an API server: its URL, and each
// domain that its host is below. A Cluster and an engine's own cluster are granted by their address
// alone.
func ServerGrants(server string) []string {
	grants := []string{server}
	if strings.HasPrefix(server, engineGrant) || strings.HasPrefix(server, clusterGrant) {
		return grants
	}
	host := hostOf(strings.TrimPrefix(server, "https://"))
	if _, err := netip.ParseAddr(host); err == nil {
		return grants
	}
	for {
		_, domain, below := strings.Cut(host, ".")
		if !below {
			return grants
		}
		grants, host = append(grants, "."+domain), domain
	}
}

// ServerGranted reports whether one of a tenant's grants covers the API server. A grant is compared
// exactly, except for a domain, which covers every host below it and any port.
func ServerGranted(grants []string, server string) bool {
	return slices.ContainsFunc(ServerGrants(server), func(g string) bool {
		return slices.Contains(grants, g)
	})
}

// CheckClusterHost reports why an entry of Fleet.clusterHosts is refused, or nil.
func CheckClusterHost(entry string) error {
	if err := plainURL(entry); err != nil {
		return err
	}
	if strings.Contains(entry, "/") {
		return errors.New("write the host alone, e.g. 127.0.0.1 or 127.0.0.1:6443")
	}
	if err := checkHostPort(entry, ""); err != nil {
		return err
	}
	return neverACluster(hostOf(entry))
}

var metadata = []netip.Addr{netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("168.63.129.16")}

// ConnectsTo reports whether a connection to a checked server URL may be made to an address: no
// server has one that CheckServerURL refuses, whatever a name resolves to, and only a host that
// InternalServer reports, and the platform has excepted, is on a loopback address.
func ConnectsTo(server string, ip netip.Addr) bool {
	ip = ip.Unmap()
	return !reservedAddress(ip) && (!ip.IsLoopback() || InternalServer(server, nil, false) != "")
}

func reservedAddress(ip netip.Addr) bool {
	return ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() ||
		slices.Contains(metadata, ip) || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

func neverACluster(host string) error {
	if ip, err := netip.ParseAddr(host); err == nil {
		if reservedAddress(ip) {
			return errors.New("the address is a metadata service's or no host's")
		}
		return nil
	}
	if host == "kubernetes" || host == "kubernetes.default" ||
		strings.HasPrefix(host, "kubernetes.default.") {
		return errors.New(
			"kubernetes.default.svc is the engine's own cluster; write cluster: {engine: ...}, or " +
				"the API server's address as the engine reaches it")
	}
	switch host {
	case "metadata", "metadata.google.internal", "metadata.goog", "instance-data",
		"instance-data.ec2.internal":
		return errors.New("the host is a metadata service")
	}
	return nil
}
