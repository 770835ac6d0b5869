package api

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
)

// The page's files carry a hash of their content in the name, as style.3f2a9c01.css, so that a
// browser keeps them for a year and never shows a page with the files of another version. The plain
// names are served too, without being kept.

const (
	keptForever = "public, max-age=31536000, immutable"
	hashLength  = 8   // of a name, in hexadecimal digits
	worthGzip   = 512 // bytes from which compression helps
)

// staticFile is one embedded file with its compressed form.
type staticFile struct {
	content, gzipped []byte
	contentType      string
	hashed           string // the name with the hash
}

// staticFiles returns the embedded files by their plain names.
var staticFiles = sync.OnceValue(func() map[string]staticFile {
	files := map[string]staticFile{}
	static, err := fs.Sub(pageFiles, "page/static")
	if err != nil {
		panic(err) // the folder is embedded: its absence is a build error
	}
	err = fs.WalkDir(static, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(static, name)
		files[name] = newStaticFile(name, content)
		return err
	})
	if err != nil {
		panic(err) // as above
	}
	return files
})

func newStaticFile(name string, content []byte) staticFile {
	sum := sha256.Sum256(content)
	ext := path.Ext(name)
	f := staticFile{content: content, contentType: mime.TypeByExtension(ext),
		hashed: strings.TrimSuffix(name, ext) + "." + hex.EncodeToString(sum[:])[:hashLength] + ext}
	switch ext { // the machine's table of types may lack or differ in these
	case ".js":
		f.contentType = "text/javascript; charset=utf-8"
	case ".css":
		f.contentType = "text/css; charset=utf-8"
	case ".svg":
		f.contentType = "image/svg+xml"
	case ".LICENSE":
		f.contentType = "text/plain; charset=utf-8"
	}
	if len(content) >= worthGzip {
		f.gzipped = gzipped(content, gzip.BestCompression)
	}
	return f
}

// asset returns the path of a file of the page with its hash; it panics on an unknown file, which
// the parsing of the templates' first rendering in a test finds.
func asset(name string) string {
	f, ok := staticFiles()[name]
	if !ok {
		panic("the page has no file " + name)
	}
	return "/static/" + f.hashed
}

// plainName removes the hash from a file's name, and reports whether there was one.
func plainName(name string) (plain string, hash bool) {
	ext := path.Ext(name)
	stem, hashed := strings.TrimSuffix(name, ext), ""
	if i := strings.LastIndexByte(stem, '.'); i >= 0 {
		stem, hashed = stem[:i], stem[i+1:]
	}
	f, ok := staticFiles()[stem+ext]
	return stem + ext, ok && hashed != "" && f.hashed == name
}

// staticFile serves one file of the page. Anybody may read it: it is the same for all.
func (s *website) staticFile(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	f, ok := staticFiles()[name]
	if plain, hash := plainName(name); hash {
		f, ok = staticFiles()[plain], true
		w.Header().Set("Cache-Control", keptForever)
	}
	if !ok {
		http.Error(w, "no such file of the page", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", f.contentType)
	w.Header().Set("Vary", "Accept-Encoding")
	content := f.content
	if f.gzipped != nil && acceptsGzip(r) {
		w.Header().Set("Content-Encoding", "gzip")
		content = f.gzipped
	}
	_, _ = w.Write(content) // the client has disconnected
}

func acceptsGzip(r *http.Request) bool {
	for encoding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(encoding), ";")
		if name == "gzip" && strings.ReplaceAll(quality, " ", "") != "q=0" {
			return true
		}
	}
	return false
}

func gzipped(content []byte, level int) []byte {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, level)
	if err != nil {
		panic(err) // the level is a constant
	}
	_, _ = z.Write(content) // a Buffer does not fail
	_ = z.Close()           // as above
	return out.Bytes()
}
