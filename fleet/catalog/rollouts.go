package catalog

import (
	"fmt"
	"slices"

	"argosy.dev/argosy/fleet"
)

// checkWaves refuses waves that name environments where the deployment does not go.
func checkWaves(e *entry, spec *fleet.DeploymentSpec) []fleet.Problem {
	if spec.Rollout == nil || spec.Destination.EnvironmentSelector != nil {
		return nil
	}
	var problems []fleet.Problem
	for i, w := range spec.Rollout.Waves {
		for j, env := range w.Environments {
			if !slices.Contains(spec.Destination.Environments, env) {
				problems = append(problems, e.problem(
					fmt.Sprintf("spec.rollout.waves[%d].environments[%d]", i, j),
					codeNotADestination,
					"add it to spec.destination.environments, or remove it from the wave",
					"the deployment does not go to environment %q", env))
			}
		}
	}
	return problems
}

// warnWaves reports waves of a deployment's own rollout that select nothing, or an environment that
// an earlier wave has. The labels that a wave selects are of other files, so that neither is an
// error.
func (ch *checker) warnWaves(e *entry, spec *fleet.DeploymentSpec) []fleet.Problem {
	if spec.Rollout == nil {
		return nil
	}
	var problems []fleet.Problem
	taken := map[fleet.EnvironmentName]string{}
	targets := ch.st.targets(e.effective)
	for i, w := range spec.Rollout.Waves {
		field := fmt.Sprintf("spec.rollout.waves[%d].environments", i)
		if w.EnvironmentSelector != nil {
			field = fmt.Sprintf("spec.rollout.waves[%d].environmentSelector", i)
		}
		selected, twice, first := 0, []string{}, ""
		for _, id := range targets {
			if !w.Selects(ch.st.get(environmentKey(id))) {
				continue
			}
			selected++
			if wave, again := taken[id.Name]; again {
				twice, first = append(twice, string(id.Name)), wave
			} else {
				taken[id.Name] = w.Name
			}
		}
		for j, name := range w.Metrics {
			var server *fleet.Prometheus
			if f := ch.st.get(fleetKey()); f != nil {
				server = f.Fleet.Prometheus
			}
			if _, declared := server.Metric(name); !declared {
				problems = append(problems, e.warning(
					fmt.Sprintf("spec.rollout.waves[%d].metrics[%d]", i, j), codeRolloutMetric,
					"name a metric of spec.prometheus in fleet/fleet.yaml, or ask the platform for one",
					"the Fleet has no metric %q: the wave waits for it, and fails after the timeout",
					name))
			}
		}
		switch {
		case selected == 0:
			problems = append(problems, e.warning(field, codeRolloutWave,
				"label an environment of the deployment, or remove the wave",
				"wave %q selects no environment of the deployment", w.Name))
		case len(twice) > 0:
			problems = append(problems, e.warning(field, codeRolloutWave,
				"narrow the selector of one of the two",
				"wave %q selects environments of wave %q, which come with the earlier one: %s", w.Name,
				first, some(twice)))
		}
	}
	return problems
}
