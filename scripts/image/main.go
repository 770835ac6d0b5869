// Command image puts static binaries into an OCI image layout, without a container engine.
//
// Rules of this package:
//   - The same binaries and the same arguments give the same bytes: no clock, no host name, no
//     file's own time, owner or order goes in.
//   - The image holds the binary, the certificates of public CAs, a user that is not root and an
//     empty /tmp. No shell, nothing to update.
//   - Each platform's manifest has the list of the binary's modules (SPDX) beside it, as a
//     referrer.
//
// The certificates are Mozilla's, from golang.org/x/crypto/x509roots at the version in go.mod, not
// from the machine that builds: go.sum pins them. Certificates that are trusted only under a
// condition, which a PEM file cannot express, are left out.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// spec is what an image is made from.
type spec struct {
	out      string
	version  string
	revision string
	created  time.Time
	binaries []binary
}

// binary is a program for one platform.
type binary struct{ platform, path string }

func run(args []string) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	digest, err := build(s)
	if err != nil {
		return err
	}
	fmt.Println(digest)
	return nil
}

func parse(args []string) (spec, error) {
	var s spec
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the error reports it
	flags.StringVar(&s.out, "out", "", "folder of the layout; replaced")
	flags.StringVar(&s.version, "version", "",
		"version label, and the name of the image in the layout")
	flags.StringVar(&s.revision, "revision", "", "commit label")
	epoch := flags.Int64("epoch", 0, "seconds since 1970: the time of every file and of the image")
	flags.Func("binary", "OS/ARCH=PATH of a static binary; once for each platform",
		func(v string) error {
			platform, path, ok := strings.Cut(v, "=")
			if goos, arch, both := strings.Cut(platform, "/"); !ok || !both || goos == "" ||
				arch == "" || path == "" {
				return errors.New("write it as linux/amd64=PATH")
			}
			s.binaries = append(s.binaries, binary{platform, path})
			return nil
		})
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	s.created = time.Unix(*epoch, 0).UTC()
	if s.out == "" || s.version == "" || len(s.binaries) == 0 {
		return s, errors.New("-out, -version and at least one -binary are required")
	}
	return s, nil
}
