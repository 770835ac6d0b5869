package postgres

import (
	"strings"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

const (
	runningImage  = "image"
	runningCommit = "commit"
)

// queueRunning keeps what each observed Application runs. It reads the key's index for each, and
// writes only what differs.
func queueRunning(b *pgx.Batch, seen []mirror.Observation) {
	var of struct{ engine, name, kind []string } // that the observations are complete for
	var now struct{ engine, name, kind, value, short, tag []string }
	for _, o := range seen {
		engine, name := text(string(o.Key.Engine)), text(o.Key.Name)
		report := func(kind string) {
			of.engine, of.name = append(of.engine, engine), append(of.name, name)
			of.kind = append(of.kind, kind)
		}
		add := func(kind, value, short, tag string) {
			now.engine, now.name = append(now.engine, engine), append(now.name, name)
			now.kind, now.value = append(now.kind, kind), append(now.value, message(value))
			now.short, now.tag = append(now.short, message(short)), append(now.tag, message(tag))
		}
		report(runningCommit)
		if o.SyncedRevision != "" && !o.Deleted {
			for _, commit := range fleet.SplitRevisions(o.SyncedRevision) {
				add(runningCommit, commit, "", "")
			}
		}
		if !o.Images.Reported() && !o.Deleted {
			continue
		}
		report(runningImage)
		for _, image := range o.Images.List() {
			short := image[strings.LastIndexByte(image, '/')+1:]
			_, tag := view.SplitImage(image)
			add(runningImage, image, strings.ToLower(short), strings.ToLower(tag))
		}
	}
	b.Queue(`
		DELETE FROM running r USING unnest($1::text[], $2::text[], $3::text[]) AS o (engine, name, kind)
		WHERE r.engine = o.engine AND r.name = o.name AND r.kind = o.kind AND NOT EXISTS (
			SELECT FROM unnest($4::text[], $5::text[], $6::text[], $7::text[]) AS n (engine, name, kind, value)
			WHERE n.engine = r.engine AND n.name = r.name AND n.kind = r.kind AND n.value = r.value)`,
		of.engine, of.name, of.kind, now.engine, now.name, now.kind, now.value)
	if len(now.value) == 0 {
		return
	}
	b.Queue(`
		INSERT INTO running (engine, name, kind, value, short, tag, tenant)
		SELECT n.engine, n.name, n.kind, n.value, n.short, n.tag, s.tenant
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[]) AS n (engine, name, kind, value, short, tag)
		JOIN status s ON s.engine = n.engine AND s.kind = 'Application' AND s.name = n.name
		WHERE NOT EXISTS (SELECT FROM running r WHERE r.engine = n.engine AND r.name = n.name AND r.kind = n.kind AND r.value = n.value)
		ON CONFLICT DO NOTHING`,
		now.engine, now.name, now.kind, now.value, now.short, now.tag)
}
