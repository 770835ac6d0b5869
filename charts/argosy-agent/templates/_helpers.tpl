{{- define "argosy-agent.labels" -}}
app.kubernetes.io/name: argosy-agent
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: argosy
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "argosy-agent.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- define "argosy-agent.argocdNamespace" -}}
{{- default (ternary .Release.Namespace "argocd" (ne .Values.namespaceOverride "")) .Values.argocd.namespace -}}
{{- end -}}

{{/* Names of cluster-scoped objects contain the agent's namespace, except the default one: two agents on a cluster need their own. */}}
{{- define "argosy-agent.clusterName" -}}
{{- $ns := include "argosy-agent.namespace" . -}}
{{- if eq $ns "argosy-agent" -}}argosy-agent{{- else -}}argosy-agent-{{ $ns }}{{- end -}}
{{- end -}}

{{- define "argosy-agent.policyName" -}}
{{- $ns := include "argosy-agent.namespace" . -}}
{{- if eq $ns "argosy-agent" -}}argosy-agent-secrets{{- else -}}argosy-agent-secrets-{{ $ns }}{{- end -}}
{{- end -}}

{{- define "argosy-agent.image" -}}
{{- $registry := default .Values.image.registry (.Values.global).imageRegistry -}}
{{- $name := ternary (printf "%s/%s" $registry .Values.image.repository) .Values.image.repository (ne $registry "") -}}
{{- if .Values.image.digest -}}
{{ $name }}@{{ .Values.image.digest }}
{{- else -}}
{{ $name }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "argosy-agent.caConfigMap" -}}
{{- if and .Values.hub.caBundle .Values.hub.existingCAConfigMap -}}
{{- fail "hub.caBundle and hub.existingCAConfigMap exclude each other" -}}
{{- end -}}
{{- if .Values.hub.caBundle -}}argosy-agent-ca{{- else -}}{{ .Values.hub.existingCAConfigMap }}{{- end -}}
{{- end -}}

{{/* The port of the hub, or of the proxy to it. */}}
{{- define "argosy-agent.hubPort" -}}
{{- $u := urlParse (default .Values.hub.url .Values.proxy.url) -}}
{{- default (ternary "80" "443" (eq $u.scheme "http")) (regexFind "[0-9]+$" (regexFind ":[0-9]+$" $u.host)) -}}
{{- end -}}

{{- define "argosy-agent.ours" -}}
has({{ . }}.metadata.labels) && 'app.kubernetes.io/managed-by' in {{ . }}.metadata.labels && {{ . }}.metadata.labels['app.kubernetes.io/managed-by'] == 'argosy' && 'argocd.argoproj.io/secret-type' in {{ . }}.metadata.labels && {{ . }}.metadata.labels['argocd.argoproj.io/secret-type'] in ['repository', 'cluster']
{{- end -}}
