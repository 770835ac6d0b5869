package fleet

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
)

// CheckCA accepts valid PEM certificates and nothing else: a private key that was pasted by mistake
// must not be stored. The error never repeats the content.
func CheckCA(ca []byte) error {
	found := 0
	for rest := ca; ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			if found == 0 || strings.TrimSpace(string(rest)) != "" {
				return errors.New("does not hold PEM certificates alone")
			}
			return nil
		}
		if block.Type != "CERTIFICATE" {
			return errors.New("holds a PEM block that is no certificate")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return errors.New("holds a certificate that cannot be read")
		}
		found++
	}
}
