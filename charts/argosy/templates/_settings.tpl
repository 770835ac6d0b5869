{{/* The credentials that are set: a list of {name, key, secret | configMap}, each of which becomes a file
     /etc/argosy/credentials/<name>/<key>. */}}
{{- define "argosy.credentials" -}}
{{- $all := list -}}
{{- range $name, $c := .Values.credentials -}}
{{- if kindIs "map" $c -}}
{{- if and $c.existingSecret $c.existingConfigMap -}}
{{- fail (printf "credentials.%s: existingSecret and existingConfigMap exclude each other" $name) -}}
{{- end -}}
{{- if or $c.existingSecret $c.existingConfigMap -}}
{{- $all = append $all (dict "name" (kebabcase $name) "key" (default "" $c.key) "secret" $c.existingSecret "configMap" (default "" $c.existingConfigMap)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $i, $c := .Values.credentials.webhookSecrets -}}
{{- $all = append $all (dict "name" (printf "webhook-secret-%d" $i) "key" (default "secret" $c.key) "secret" $c.existingSecret "configMap" "") -}}
{{- end -}}
{{- if .Values.postgresql.trial.enabled -}}
{{- if .Values.credentials.database.existingSecret -}}
{{- fail "credentials.database.existingSecret and postgresql.trial.enabled exclude each other" -}}
{{- end -}}
{{- $all = append $all (dict "name" "database" "key" "url" "secret" (include "argosy.trialName" .) "configMap" "") -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* The path of a credential's file, or "". Takes root and name. */}}
{{- define "argosy.file" -}}
{{- range include "argosy.credentials" .root | fromYamlArray -}}
{{- if eq .name $.name -}}/etc/argosy/credentials/{{ .name }}/{{ .key }}{{- end -}}
{{- end -}}
{{- end -}}

{{/* argosy.yaml: the value config, and the settings that the chart sets. */}}
{{- define "argosy.settings" -}}
{{- $root := . -}}
{{- $s := deepCopy .Values.config -}}
{{- $_ := required "config.source.url is required: the https or ssh URL of the config repo" ($s.source).url -}}
{{- $files := dict -}}
{{- range include "argosy.credentials" . | fromYamlArray -}}
{{- $_ := set $files .name (printf "/etc/argosy/credentials/%s/%s" .name .key) -}}
{{- end -}}
{{- $url := required "credentials.database.existingSecret is required: a Secret with PostgreSQL's URL (for a trial: postgresql.trial.enabled)" (get $files "database") -}}
{{- $_ := set $s "database" (dict "urlFile" $url) -}}
{{- if eq .Values.database.migrations "external" -}}{{- $_ := set $s.database "migrate" false -}}{{- end -}}
{{- $_ := set $s.database "connections" .Values.database.connections -}}
{{- $_ := set $s "dataDir" "/var/lib/argosy" -}}
{{- $listen := merge (dict "address" ":8080" "ops" ":8081") (default dict $s.listen) -}}
{{- if .Values.credentials.tls.existingSecret -}}
{{- $_ := set $listen "certFile" "/etc/argosy/credentials/tls/tls.crt" -}}
{{- $_ := set $listen "keyFile" "/etc/argosy/credentials/tls/tls.key" -}}
{{- end -}}
{{- $_ := set $s "listen" $listen -}}
{{- range $name, $setting := dict "source-token" "tokenFile" "source-password" "passwordFile" "source-ssh-key" "sshKeyFile" "source-known-hosts" "knownHostsFile" "source-ca" "caFile" -}}
{{- with get $files $name -}}{{- $_ := set $s.source $setting . -}}{{- end -}}
{{- end -}}
{{- if $s.forge -}}
{{- with get $files "forge-token" -}}{{- $_ := set $s.forge "tokenFile" . -}}{{- end -}}
{{- with get $files "forge-ca" -}}{{- $_ := set $s.forge "caFile" . -}}{{- end -}}
{{- with get $files "forge-app-key" -}}{{- $_ := set $s.forge "app" (merge (dict "keyFile" .) (default dict $s.forge.app)) -}}{{- end -}}
{{- if $s.forge.app -}}
{{- $_ := required "config.forge.app.id is required with credentials.forgeAppKey: the App's ID" $s.forge.app.id -}}
{{- $_ := required "credentials.forgeAppKey.existingSecret is required with config.forge.app" $s.forge.app.keyFile -}}
{{- end -}}
{{- $hooks := list -}}
{{- range $i, $c := .Values.credentials.webhookSecrets -}}{{- $hooks = append $hooks (get $files (printf "webhook-secret-%d" $i)) -}}{{- end -}}
{{- if $hooks -}}{{- $_ := set $s.forge "webhookSecretFiles" $hooks -}}{{- end -}}
{{- else if or (get $files "forge-token") (get $files "forge-app-key") .Values.credentials.webhookSecrets -}}
{{- fail "credentials of a Git host are set without config.forge: set config.forge.repository to owner/name" -}}
{{- end -}}
{{- if $s.tracing -}}
{{- with get $files "tracing-ca" -}}{{- $_ := set $s.tracing "caFile" . -}}{{- end -}}
{{- else if get $files "tracing-ca" -}}
{{- fail "credentials.tracingCA is set without config.tracing: set config.tracing.endpoint to the URL of the collector" -}}
{{- end -}}
{{- $secrets := dict -}}
{{- if .Values.secrets.kubernetes.enabled -}}
{{- $k := dict "namespace" (include "argosy.platformNamespace" .) -}}
{{- with get $files "secrets-kubeconfig" -}}{{- $_ := set $k "kubeconfig" . -}}{{- end -}}
{{- $_ := set $secrets "kubernetes" $k -}}
{{- end -}}
{{- with .Values.secrets.directory -}}{{- $_ := set $secrets "directory" . -}}{{- end -}}
{{- $age := dict -}}
{{- with get $files "age-identity" -}}{{- $_ := set $age "identityFile" . -}}{{- end -}}
{{- with get $files "age-tenant-identities" -}}{{- $_ := set $age "tenantIdentities" (trimSuffix "/" .) -}}{{- end -}}
{{- if $age -}}{{- $_ := set $secrets "age" $age -}}{{- end -}}
{{- if $secrets -}}{{- $_ := set $s "secrets" $secrets -}}{{- end -}}
{{- with get $files "bootstrap-token" -}}{{- $_ := set $s "bootstrapTokenFile" . -}}{{- end -}}
{{- toYaml $s -}}
{{- end -}}

{{- define "argosy.volumes" -}}
- name: settings
  configMap:
    name: {{ .settings }}
- name: data
  emptyDir:
    sizeLimit: {{ .root.Values.dataSize }}
- name: tmp
  emptyDir:
    sizeLimit: {{ .root.Values.dataSize }}
{{- range include "argosy.credentials" .root | fromYamlArray }}
- name: {{ .name }}
  {{- if .secret }}
  secret:
    secretName: {{ .secret }}
    {{- with .key }}
    items: [{key: {{ . }}, path: {{ . }}}]
    {{- end }}
  {{- else }}
  configMap:
    name: {{ .configMap }}
    items: [{key: {{ .key }}, path: {{ .key }}}]
  {{- end }}
{{- end }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "argosy.mounts" -}}
- {name: settings, mountPath: /etc/argosy/argosy.yaml, subPath: argosy.yaml, readOnly: true}
- {name: data, mountPath: /var/lib/argosy}
- {name: tmp, mountPath: /tmp}
{{- range include "argosy.credentials" . | fromYamlArray }}
- {name: {{ .name }}, mountPath: /etc/argosy/credentials/{{ .name }}, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A container of argosy. Takes root, name and args. */}}
{{- define "argosy.container" -}}
name: {{ .name }}
image: {{ include "argosy.image" (dict "image" .root.Values.image "root" .root) }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
args: {{ toJson .args }}
securityContext:
  {{- toYaml .root.Values.securityContext | nindent 2 }}
{{- with .root.Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  {{- include "argosy.mounts" .root | nindent 2 }}
{{- end -}}

{{/* The common part of Deployment, Job and test Pod. */}}
{{- define "argosy.placement" -}}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- include "argosy.pullSecrets" . }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
