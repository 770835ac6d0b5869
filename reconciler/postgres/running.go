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
	// what the observations are complete for; wanted are the values, one a line
	var of struct{ engine, name, kind, wanted []string }
	var now struct{ engine, name, kind, value, short, tag []string }
	for _, o := range seen {
		engine, name := text(string(o.Key.Engine)), text(o.Key.Name)
		report := func(kind string) {
			of.engine, of.name = append(of.engine, engine), append(of.name, name)
			of.kind, of.wanted = append(of.kind, kind), append(of.wanted, "")
		}
		add := func(kind, value, short, tag string) {
			now.engine, now.name = append(now.engine, engine), append(now.name, name)
			value = message(value)
			now.kind, now.value = append(now.kind, kind), append(now.value, value)
			of.wanted[len(of.wanted)-1] += value + "\n"
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
	// Each row is compared with the few values of its own Application: a join with all values of
	// the batch would compare every row with every value.
	b.Queue(`
		DELETE FROM running r USING unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS o (engine, name, kind, wanted)
		WHERE r.engine = o.engine AND r.name = o.name AND r.kind = o.kind AND r.value <> ALL (string_to_array(o.wanted, E'\n'))`,
		of.engine, of.name, of.kind, of.wanted)
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
