{{/* The paths of each set of routes. /api/v1/agents is for people too, so the agents' paths are listed one by one. */}}
{{- define "argosy.paths" -}}
api: [{type: Prefix, path: /}]
webhook: [{type: Exact, path: /webhook/github}, {type: Prefix, path: /webhook/push}]
agents:
  - {type: Exact, path: /api/v1/agents/join}
  - {type: Exact, path: /api/v1/agents/token}
  - {type: Exact, path: /api/v1/agents/keys}
  - {type: Prefix, path: /api/v1/cluster}
{{- end -}}
