package postgres

import (
	"context"

	"argosy.dev/argosy/fleet/view"
)

// SetSource stores the result of the latest fetch of the config repo: URL (without credentials),
// branch, head, time, and error. The store sets Since to when Error began, or ended. A fetch
// without news is written at most every ten seconds.
func (s *Plans) SetSource(ctx context.Context, v view.Source) error {
	err := s.again(ctx, func() error {
		_, err := s.work.Exec(ctx, `
			UPDATE source SET url = $1, branch = $2, head = CASE WHEN $3 = '' THEN head ELSE $3 END, fetched_at = coalesce($4, fetched_at), error = $5,
				since = CASE WHEN (error = '') = ($5 = '') THEN since WHEN $5 = '' THEN NULL ELSE now() END
			WHERE (url, branch, error) <> ($1, $2, $5) OR $3 NOT IN ('', head)
				OR $4::timestamptz IS NOT NULL AND (fetched_at IS NULL OR fetched_at + interval '10 s' <= $4)`,
			text(v.URL), text(v.Branch), string(v.Head), v.FetchedAt, message(v.Error))
		return err
	})
	return wrap(err, "state of the config repo")
}

// Source returns the state of the config repo.
func (s *Views) Source(ctx context.Context) (view.Source, error) {
	var v view.Source
	err := s.again(ctx, func() error {
		return s.work.QueryRow(ctx,
			`SELECT s.url, s.branch, s.head, m.applied, s.fetched_at, s.error, s.since FROM source s, mirror m`).
			Scan(&v.URL, &v.Branch, &v.Head, &v.Applied, &v.FetchedAt, &v.Error, &v.Since)
	})
	return v, wrap(err, "state of the config repo")
}
