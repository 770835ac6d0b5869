package configschema

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
)

var formatConcurrent = &format{code: codeInvalidValue, what: "a number of Applications " +
	"from 1, or a part of the wave from 1% to 100%, such as 5 or \"25%\"",
	pattern: `^([1-9][0-9]{0,4}|[1-9][0-9]?%|100%)$`, check: checkConcurrent}

func checkConcurrent(s string) error {
	number, percent := strings.CutSuffix(s, "%")
	n, err := strconv.Atoi(number)
	switch {
	case err != nil || strings.HasPrefix(number, "+"):
		return errors.New(quoted(s) + " is neither a number nor a percentage")
	case n < 1 || percent && n > 100 || n > 99999:
		return errors.New(quoted(s) + " is out of range")
	}
	return nil
}

// rollout is how a change reaches the environments of a deployment. of completes its description.
func rollout(of string) field {
	upTo := func(most time.Duration) value {
		return value{shape: shapeDuration, least: int64(time.Second), most: int64(most)}
	}
	return field{
		name: "rollout",
		doc: "Waves in which a change reaches the environments: the next one begins when all " +
			"Applications of the last one are Synced and Healthy with the change " +
			"(`docs/rollouts.md`). " + of,
		value: object(
			field{
				name: "waves",
				doc: "Waves in their order. An environment is in the first wave that selects it; those " +
					"that none selects are a last wave, `rest`. `[]`: all at once.",
				required: true,
				value: listOf(object(
					field{name: "name", doc: "The name, for people.", example: "canary",
						required: true, value: textOf(formatName)},
					field{name: "environments", doc: "Names of environments.", example: "[staging]",
						value: listOf(textOf(formatName))},
					field{name: "environmentSelector", doc: "Selects environments by label.",
						example: "{matchLabels: {tier: prod}}",
						value: selector("Label keys and exact values; all must match.",
							"{tier: prod}")},
					field{
						name: "maxConcurrent",
						doc: "How many Applications of the wave change at the same time: a number, or " +
							"percent of the wave. Left out: all.",
						example: "25%", value: textOf(formatConcurrent)},
					field{
						name: "soak",
						doc: "How long all of the wave stay Synced and Healthy before the next wave: a " +
							"duration up to 168h.", example: "10m", value: upTo(168 * time.Hour)},
					field{
						name:    "approval",
						doc:     "The wave begins once an owner of the tenant approves it: `argosy rollouts approve`.",
						example: "true", fallback: "false", value: boolean()},
					field{
						name: "metrics",
						doc: "Names of metrics of `Fleet.spec.prometheus` that are good before the wave " +
							"is done.", example: "[error-rate]",
						value: listOf(textOf(formatName)).atMost(10)},
				).exactlyOneOf("environments", "environmentSelector")).by("name").atMost(20).
					mayBeEmpty()},
			field{
				name: "onFailure",
				doc: "What a failed wave does. `Return`: every Application with the change gets its " +
					"last good state back. `Pause`: everything stays until a person decides.",
				example: "Return", fallback: "Return",
				value: wordOf(string(fleet.RolloutReturn), string(fleet.RolloutPause))},
			field{
				name:    "timeout",
				doc:     "How long an Application may take to get Synced and Healthy: up to 24h.",
				example: "30m", fallback: "30m", value: upTo(24 * time.Hour)},
			field{
				name: "patience",
				doc: "How long an Application may be Degraded, or its sync fail, before the wave " +
					"fails: a duration up to 24h.",
				example: "1m", fallback: "1m", value: upTo(24 * time.Hour)},
		)}
}

// wavesFit refuses an environment that two waves name, and waves of a deployment that people sync.
func wavesFit(d *decoder, into reflect.Value, at node) {
	spec := into.Addr().Interface().(*fleet.DeploymentSpec)
	if spec.Rollout == nil || len(spec.Rollout.Waves) == 0 {
		return
	}
	n := child(at, "rollout")
	if spec.Sync.Mode == fleet.SyncManual {
		d.at("rollout", func() {
			d.problem(n, codeExclusive, "a deployment with sync.mode manual has no waves: Argo CD "+
				"does not sync its Applications by itself, so that no wave gets Healthy",
				"remove rollout, or write sync: {mode: automated}")
		})
	}
	in := map[fleet.EnvironmentName]string{}
	waves := child(n, "waves")
	for i, w := range spec.Rollout.Waves {
		for j, env := range w.Environments {
			if other, twice := in[env]; twice && other != w.Name {
				d.steps = append(d.steps, step{"rollout", -1}, step{"waves", -1}, step{"", i},
					step{"environments", -1}, step{"", j})
				d.problem(child(waves.Content[i], "environments").Content[j], codeDuplicateEntry,
					"environment "+quoted(string(env))+" is in wave "+quoted(other)+" already",
					"name it in one wave")
				d.steps = d.steps[:len(d.steps)-5]
			}
			in[env] = w.Name
		}
	}
}
