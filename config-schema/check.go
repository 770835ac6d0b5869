package configschema

import (
	"runtime"
	"slices"
	"sync"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/policy"
)

// DecodeAll decodes files side by side on every core. The documents stand in the order of the
// files.
func DecodeAll(files []File) []Document {
	docs := make([]Document, len(files))
	const batch = 64 // files a worker takes at a time
	next := make(chan int, len(files)/batch+1)
	for i := 0; i < len(files); i += batch {
		next <- i
	}
	close(next)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for from := range next {
				for i := from; i < min(from+batch, len(files)); i++ {
					docs[i] = Decode(files[i])
				}
			}
		})
	}
	workers.Wait()
	return docs
}

// Check reads a whole config repo offline, as a first commit of it would be read, and returns every
// problem in the order of paths and lines: of each file, of paths that are twins, and of what the
// files say of one another. Files outside `fleet/` and `tenants/` are ignored.
func Check(files []File) (problems []fleet.Problem) {
	docs := DecodeAll(files)
	paths := make([]string, len(files))
	for i, f := range files {
		paths[i] = f.Path
	}
	twins := map[string][]fleet.Problem{}
	for _, p := range Twins(paths) {
		twins[p.Path] = append(twins[p.Path], p)
	}
	inputs, texts := make([]catalog.Input, 0, len(docs)), make(map[string][]byte, len(docs))
	for i, d := range docs {
		if d.Key.Kind == "" {
			continue
		}
		in := catalog.Input{Key: d.Key, Path: d.Path, Blob: d.Blob, Declaration: d.Declaration,
			Problems: append(d.Problems, twins[d.Path]...)}
		inputs, texts[d.Path] = append(inputs, in), files[i].Bytes
	}
	problems = catalog.New().Judging(policy.New().Judge).Prepare(inputs).Problems()
	Place(problems, func(path string) []byte { return texts[path] })
	sortProblems(problems)
	return problems
}

// Place fills in the line and column of problems that name a field only. text returns the file at a
// path, or nil when it is not known.
func Place(problems []fleet.Problem, text func(path string) []byte) {
	parsed := map[string]node{}
	for i := range problems {
		p := &problems[i]
		if p.Line > 0 || p.Field == "" {
			continue
		}
		root, ok := parsed[p.Path]
		if !ok {
			root = tree(text(p.Path))
			parsed[p.Path] = root
		}
		if root != nil {
			p.Line, p.Column = locate(root, p.Field)
		}
	}
}

// sortProblems puts problems into the order in which people read them: by path, then by place.
func sortProblems(problems []fleet.Problem) {
	slices.SortStableFunc(problems, fleet.CompareProblems)
}
