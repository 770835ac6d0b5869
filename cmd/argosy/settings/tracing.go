package settings

import (
	"errors"
	"net/url"
	"time"
)

// Tracing is where the spans of commits are exported to.
type Tracing struct {
	Endpoint  string   `yaml:"endpoint" doc:"https URL of the collector's OTLP receiver over HTTP, such as https://collector.example.com:4318; without a path, /v1/traces is added. No credential in it."`
	AllowHTTP bool     `yaml:"allowHTTP,omitempty" doc:"Accept an http:// endpoint: the names of tenants and Applications are not encrypted on their way."`
	CAFile    string   `yaml:"caFile,omitempty" doc:"File with the CA certificates of the collector, for a private CA."`
	Patience  Duration `yaml:"patience,omitempty" doc:"A commit is exported once all its Applications are Healthy, or after this time, 1m to 12h." default:"30m"`
}

func (t *Tracing) withDefaults() {
	if t != nil && t.Patience == 0 {
		t.Patience = Duration(30 * time.Minute)
	}
}

func (t *Tracing) check() error {
	if t == nil {
		return nil
	}
	var errs []error
	u, err := url.Parse(t.Endpoint)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		u.Scheme != "http" && u.Scheme != "https":
		errs = append(errs, errors.New("tracing.endpoint must be a URL such as "+
			"https://collector.example.com:4318, without a credential or query"))
	case u.Scheme == "http" && !t.AllowHTTP:
		errs = append(errs, errors.New("tracing.endpoint is http; use https, or set "+
			"tracing.allowHTTP for a collector whose network you trust"))
	}
	if d := time.Duration(t.Patience); d < time.Minute || d > 12*time.Hour {
		errs = append(errs, errors.New("tracing.patience must be 1m to 12h"))
	}
	return errors.Join(errs...)
}
