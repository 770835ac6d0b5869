package configschema

import (
	"cmp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"argosy.dev/argosy/fleet"
)

// DecodeAll decodes files side by side on every core. The documents stand in the order of the files.
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

// sortProblems puts problems into the order in which people read them: by path, then by place.
func sortProblems(problems []fleet.Problem) {
	slices.SortStableFunc(problems, func(a, b fleet.Problem) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			strings.Compare(a.Field, b.Field), strings.Compare(a.Code, b.Code), strings.Compare(a.Message, b.Message))
	})
}
