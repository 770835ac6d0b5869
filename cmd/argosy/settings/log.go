package settings

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"argosy.dev/argosy/fleet/printable"
)

var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo,
	"warn": slog.LevelWarn, "error": slog.LevelError}

// Logger is the logger that the settings ask for.
func (l Log) Logger(to io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: levels[l.Level]}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(printable.JSONWriter(to), opts))
	}
	return slog.New(slog.NewTextHandler(printable.LinesWriter(to), opts))
}

// Check says what is wrong with it.
func (l Log) Check() error {
	var errs []error
	if _, ok := levels[l.Level]; !ok {
		errs = append(errs, fmt.Errorf("log.level %q is to be debug, info, warn or error", l.Level))
	}
	if l.Format != "text" && l.Format != "json" {
		errs = append(errs, fmt.Errorf("log.format %q is to be text or json", l.Format))
	}
	return errors.Join(errs...)
}
