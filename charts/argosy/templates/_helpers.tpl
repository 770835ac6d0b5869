{{- define "argosy.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "argosy.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 46 | trimSuffix "-" -}}
{{- else if contains (include "argosy.name" .) .Release.Name -}}
{{- .Release.Name | trunc 46 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "argosy.name" .) | trunc 46 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "argosy.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "argosy.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "argosy.selector" -}}
app.kubernetes.io/name: {{ include "argosy.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "argosy.labels" -}}
{{ include "argosy.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: argosy
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* An image, by digest if there is one. Takes the image's values and the release's root. */}}
{{- define "argosy.image" -}}
{{- $registry := default .image.registry (.root.Values.global).imageRegistry -}}
{{- $name := ternary (printf "%s/%s" $registry .image.repository) .image.repository (ne $registry "") -}}
{{- if .image.digest -}}
{{ $name }}@{{ .image.digest }}
{{- else -}}
{{ $name }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end -}}
{{- end -}}

{{- define "argosy.pullSecrets" -}}
{{- $all := list -}}
{{- range concat .Values.imagePullSecrets (default list (.Values.global).imagePullSecrets) -}}
{{- $all = append $all (ternary . (dict "name" .) (kindIs "map" .)) -}}
{{- end -}}
{{- with $all }}
imagePullSecrets:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "argosy.openshift" -}}
{{- if or (.Values.global).openshift (.Capabilities.APIVersions.Has "route.openshift.io/v1") -}}true{{- end -}}
{{- end -}}

{{- define "argosy.platformNamespace" -}}
{{- default .Release.Namespace .Values.secrets.kubernetes.namespace -}}
{{- end -}}

{{/* Whether the process sends requests to its own cluster. */}}
{{- define "argosy.asksCluster" -}}
{{- if or .Values.secrets.kubernetes.enabled .Values.rbac.engineNamespaces -}}true{{- end -}}
{{- end -}}

{{- define "argosy.publicHost" -}}
{{- with (.Values.config.listen).publicURL -}}{{- regexReplaceAll ":[0-9]+$" (urlParse .).host "" -}}{{- end -}}
{{- end -}}

{{- define "argosy.trialName" -}}{{ include "argosy.fullname" . }}-postgresql{{- end -}}

{{/* The namespace of a tenant's Secrets and service accounts, as fleet.TenantNamespace computes it. */}}
{{- define "argosy.tenantNamespace" -}}
{{- if le (len .) 49 -}}
argosy-tenant-{{ . }}
{{- else -}}
argosy-long-tenant-{{ regexReplaceAll "-+$" (trunc 23 .) "" }}-{{ sha256sum . | trunc 20 }}
{{- end -}}
{{- end -}}
