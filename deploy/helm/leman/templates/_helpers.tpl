{{- define "leman.name" -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- /* What tells the pods of one service: {{ include "leman.selector" (dict "root" $ "component" "planner") }} */ -}}
{{- define "leman.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "leman.labels" -}}
{{ include "leman.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "leman.checks" -}}
{{- if not .Values.auth.existingSecret }}{{ fail "set auth.existingSecret: the name of a secret with the services' token" }}{{ end }}
{{- if not .Values.redis.existingSecret }}{{ fail "set redis.existingSecret: the name of a secret with the url of a Redis" }}{{ end }}
{{- if and (not .Values.tls.existingSecret) (not .Values.tls.allowInsecure) }}{{ fail "set tls.existingSecret, or tls.allowInsecure where the network is protected otherwise" }}{{ end }}
{{- if and .Values.tls.existingSecret .Values.tls.allowInsecure }}{{ fail "set one of tls.existingSecret and tls.allowInsecure" }}{{ end }}
{{- if and (gt (int .Values.commitCoordinator.replicas) 1) (ne (get .Values.commitCoordinator.env "LEMAN_COMMIT__ALONE" | default "false") "false") }}{{ fail "commitCoordinator.env: LEMAN_COMMIT__ALONE is false where there are two replicas, as none of them is alone: leave it out" }}{{ end }}
{{- include "leman.portChecks" . }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.port) }}{{ fail "metrics.serviceMonitor.enabled: with metrics.port 0 there is no page to watch: set a port, or leave the monitor out" }}{{ end }}
{{- $name := include "leman.name" . }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) }}{{ fail (printf "the release's name: services would be called %s, which Kubernetes refuses: let it begin with a letter, and have letters, digits and - alone" $name) }}{{ end }}
{{- range append .Values.storage.databaseRoots .Values.storage.registry }}
{{- if not (regexMatch "^(/|[A-Za-z][A-Za-z0-9+.-]*:/|$)" .) }}{{ fail (printf "storage.databaseRoots, storage.registry: %s is a relative path, which is none for a service: give an absolute one or a uri" .) }}{{ end }}
{{- end }}
{{- range $key, $_ := .Values.spark.conf }}
{{- if include "leman.isSecretOfSpark" $key }}{{ fail (printf "spark.conf: %s would be readable in the pods' description: put LEMAN_SPARK__CONF, a JSON object with all of Spark's settings, in a secret of envFromSecrets, and leave spark.conf out" $key) }}{{ end }}
{{- end }}
{{- end }}

{{- /* A pod listens on each port for one thing. */ -}}
{{- define "leman.portChecks" -}}
{{- $taken := dict "7443" "the services' own" }}
{{- $asked := list (list "executor.httpPort" .Values.executor.httpPort) (list "metrics.port" .Values.metrics.port) }}
{{- if .Values.spark.master }}{{ range $further := until 3 }}{{ $asked = append $asked (list "spark.callbackPort" (add $.Values.spark.callbackPort $further)) }}{{ end }}{{ end }}
{{- range $asked }}
{{- $port := index . 1 | int | toString }}
{{- if and (ne $port "0") (hasKey $taken $port) }}{{ fail (printf "%s: port %s is %s already: give it another one" (index . 0) $port (get $taken $port)) }}{{ end }}
{{- $_ := set $taken $port (index . 0) }}
{{- end }}
{{- end }}

{{- /* Something, where a setting of Spark of this name is a secret. */ -}}
{{- define "leman.isSecretOfSpark" -}}
{{- if regexMatch "(?i)((secret|password|token|credential|(access|api|secret).?key)s?$|account.?key|client.?secret)" . }}yes{{ end }}
{{- end }}

{{- /* What keeps a setting out of a service's env, whatever else the chart sets; nothing, where it may stand there:
{{ include "leman.refusal" (dict "name" $name "value" $value) }} */ -}}
{{- define "leman.refusal" -}}
{{- $byValue := dict "LEMAN_SERVER__HTTP_PORT" "executor.httpPort" "LEMAN_METRICS__PORT" "metrics.port" "LEMAN_METRICS__HOST" "metrics.port" "LEMAN_SPARK__CALLBACK_PORT" "spark.callbackPort" "LEMAN_SPARK__MASTER" "spark.master" "LEMAN_SPARK__DRIVER_HOST" "spark.master" }}
{{- $readable := "would be readable in the pods' description: put it in a secret, and the secret's name in envFromSecrets" }}
{{- if hasKey $byValue .name -}}
comes with {{ get $byValue .name }}, by which the chart opens {{ if hasPrefix "LEMAN_SPARK__" .name }}the ports that Spark calls back{{ else }}the port{{ end }}, too: set that, and leave it out here
{{- else if eq .name "LEMAN_SERVER__MTLS_PORT" -}}
names a port that the chart does not open: leave it out
{{- else if or (eq .name "LEMAN_LINEAGE__API_KEY") (eq .name "LEMAN_REDIS__WORKERS_URL") (regexMatch "^OTEL_([A-Z0-9_]+_)?HEADERS$" .name) -}}
{{ $readable }}
{{- else if and (regexMatch "^(LEMAN_LINEAGE__URL|OTEL_[A-Z_]*ENDPOINT)$" .name) (regexMatch "//[^/?#@]+@" .value) -}}
has credentials, which {{ $readable }}
{{- else if eq .name "LEMAN_SPARK__CONF" }}
{{- $conf := fromJson .value }}
{{- if hasKey $conf "Error" -}}
is no JSON object
{{- end }}
{{- range $key, $_ := $conf }}
{{- if include "leman.isSecretOfSpark" $key -}}
has {{ $key }}, which {{ $readable }}
{{- break }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "leman.secretVariable" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef: {name: {{ .secret | quote }}, key: {{ .key | quote }}}
{{- end }}

{{- /* Settings that all services have. */ -}}
{{- define "leman.env" -}}
{{- $name := include "leman.name" . }}
- {name: LEMAN_SERVER__HOST, value: "0.0.0.0"}
- {name: LEMAN_SERVER__PORT, value: "7443"}
- {name: LEMAN_SERVER__GRACE_SECONDS, value: {{ .Values.graceSeconds | quote }}}
- {name: LEMAN_PEERS__PLANNER, value: "{{ $name }}-planner:7443"}
- {name: LEMAN_PEERS__EXECUTOR, value: "{{ $name }}:7443"}
- {name: LEMAN_PEERS__COMMIT_COORDINATOR, value: "{{ $name }}-commit-coordinator:7443"}
- {name: LEMAN_ADVERTISE__PLANNER, value: {{ .Values.advertise.planner | default (printf "%s-planner.%s:7443" $name .Release.Namespace) | quote }}}
- {name: LEMAN_ADVERTISE__EXECUTOR, value: {{ .Values.advertise.executor | default (printf "%s.%s:7443" $name .Release.Namespace) | quote }}}
- {name: LEMAN_ADVERTISE__COMMIT_COORDINATOR, value: {{ .Values.advertise.commitCoordinator | default (printf "%s-commit-coordinator.%s:7443" $name .Release.Namespace) | quote }}}
{{ include "leman.secretVariable" (dict "name" "LEMAN_SERVER__TOKEN" "secret" .Values.auth.existingSecret "key" .Values.auth.tokenKey) }}
{{ include "leman.secretVariable" (dict "name" "LEMAN_PEERS__TOKEN" "secret" .Values.auth.existingSecret "key" .Values.auth.tokenKey) }}
{{ include "leman.secretVariable" (dict "name" "LEMAN_REDIS__URL" "secret" .Values.redis.existingSecret "key" .Values.redis.urlKey) }}
{{- if .Values.auth.tokensFileSecret }}
- {name: LEMAN_SERVER__TOKENS_FILE, value: {{ printf "/etc/leman/tokens/%s" .Values.auth.tokensFileKey | quote }}}
{{- end }}
{{- if .Values.tls.existingSecret }}
- {name: LEMAN_SERVER__TLS_CERT, value: /etc/leman/tls/tls.crt}
- {name: LEMAN_SERVER__TLS_KEY, value: /etc/leman/tls/tls.key}
- {name: LEMAN_PEERS__TLS_CA, value: /etc/leman/tls/ca.crt}
{{- else }}
- {name: LEMAN_SERVER__ALLOW_INSECURE_BIND, value: "true"}
{{- end }}
{{- if .Values.storage.optionsSecret }}
- {name: LEMAN_STORAGE__OPTIONS_FILE, value: {{ printf "/etc/leman/stores/%s" .Values.storage.optionsKey | quote }}}
{{- end }}
{{- if .Values.storage.databaseRoots }}
- {name: LEMAN_SERVER__DATABASE_ROOTS, value: {{ .Values.storage.databaseRoots | toJson | quote }}}
{{- end }}
{{- if .Values.storage.registry }}
- {name: LEMAN_SERVER__REGISTRY, value: {{ .Values.storage.registry | quote }}}
{{- end }}
{{- if .Values.metrics.port }}
- {name: LEMAN_METRICS__PORT, value: {{ .Values.metrics.port | quote }}}
- {name: LEMAN_METRICS__HOST, value: "0.0.0.0"}
{{- end }}
- {name: LEMAN_LOG__LEVEL, value: {{ .Values.logLevel | quote }}}
- {name: LEMAN_LOG__JSON_LINES, value: "true"}
- {name: XDG_CACHE_HOME, value: /tmp/cache}
{{- end }}

{{- /* A service's own settings, of which none is rendered before:
{{ include "leman.ownEnv" (dict "root" $ "service" "executor" "also" (list "LEMAN_EXECUTOR__ADDRESS")) }} */ -}}
{{- define "leman.ownEnv" -}}
{{- $given := include "leman.env" .root }}
{{- range $name, $value := (index .root.Values .service).env }}
{{- with include "leman.refusal" (dict "name" $name "value" $value) }}{{ fail (printf "%s.env: %s %s" $.service $name .) }}{{ end }}
{{- if or (has $name $.also) (regexMatch (printf "name: %s\\b" $name) $given) }}{{ fail (printf "%s.env: %s is set by the chart already, from other values: leave it out here" $.service $name) }}{{ end }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- define "leman.envFrom" -}}
{{- with .Values.envFromSecrets }}
envFrom:
{{- range . }}
  - secretRef: {name: {{ . | quote }}}
{{- end }}
{{- end }}
{{- end }}

{{- define "leman.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if .Values.tls.existingSecret }}
- {name: tls, mountPath: /etc/leman/tls, readOnly: true}
{{- end }}
{{- if .Values.auth.tokensFileSecret }}
- {name: tokens, mountPath: /etc/leman/tokens, readOnly: true}
{{- end }}
{{- if .Values.storage.optionsSecret }}
- {name: stores, mountPath: /etc/leman/stores, readOnly: true}
{{- end }}
{{- if .Values.storage.existingClaim }}
- {name: data, mountPath: /data}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* {{ include "leman.volumes" (dict "root" $ "tmpSize" "1Gi") }} */ -}}
{{- define "leman.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: {{ .tmpSize }}}
{{- with .root.Values }}
{{- if .tls.existingSecret }}
- name: tls
  secret: {secretName: {{ .tls.existingSecret | quote }}, defaultMode: 0440}
{{- end }}
{{- if .auth.tokensFileSecret }}
- name: tokens
  secret: {secretName: {{ .auth.tokensFileSecret | quote }}, defaultMode: 0440}
{{- end }}
{{- if .storage.optionsSecret }}
- name: stores
  secret: {secretName: {{ .storage.optionsSecret | quote }}, defaultMode: 0440}
{{- end }}
{{- if .storage.existingClaim }}
- name: data
  persistentVolumeClaim: {claimName: {{ .storage.existingClaim | quote }}}
{{- end }}
{{- with .extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Over TLS Kubernetes cannot ask gRPC's health by itself. */ -}}
{{- define "leman.health" -}}
{{- if .Values.tls.existingSecret -}}
exec:
  command: [python, -m, leman_core.server.healthcheck, "localhost:7443"]
{{- else -}}
grpc: {port: 7443}
{{- end }}
{{- end }}

{{- /* For so long the health service may not answer: two minutes, and twice the grace of a pod that stops. */ -}}
{{- define "leman.hangSeconds" -}}
{{- max 120 (mul 2 (int .Values.graceSeconds)) }}
{{- end }}

{{- define "leman.probes" -}}
startupProbe:
  {{- include "leman.health" . | nindent 2 }}
  periodSeconds: 5
  timeoutSeconds: 10
  failureThreshold: 36
readinessProbe:
  {{- include "leman.health" . | nindent 2 }}
  periodSeconds: {{ ternary 20 5 (ne .Values.tls.existingSecret "") }}
  timeoutSeconds: 10
  failureThreshold: 3
# Health says that calls are answered: a service that waits for a peer, or for Spark, is not restarted; one whose event loop
# hangs is, after {{ include "leman.hangSeconds" . }} seconds, which leaves a pod that stops its grace.
livenessProbe:
  {{- include "leman.health" . | nindent 2 }}
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: {{ div (include "leman.hangSeconds" . | int) 20 }}
{{- end }}

{{- define "leman.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "leman.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* {{ include "leman.image" (dict "root" $ "component" "planner") }} */ -}}
{{- define "leman.image" -}}
{{- $image := .root.Values.image }}
{{- $repository := ternary $image.repository ($image.servicesRepository | default $image.repository) (eq .component "executor") }}
image: {{ printf "%s:%s" $repository ($image.tag | default .root.Chart.AppVersion) | quote }}
imagePullPolicy: {{ $image.pullPolicy }}
{{- end }}

{{- define "leman.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Pods of one service keep to different zones where there are any: {{ include "leman.spread" (dict "root" $ "component" "planner" "of" .Values.planner) }} */ -}}
{{- define "leman.spread" -}}
topologySpreadConstraints:
{{- if .of.topologySpreadConstraints }}
  {{- toYaml .of.topologySpreadConstraints | nindent 2 }}
{{- else }}
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "leman.selector" . | nindent 8 }}
{{- end }}
{{- end }}

{{- /* {{ include "leman.placement" (dict "root" $ "component" "planner" "of" .Values.planner) }} */ -}}
{{- define "leman.placement" -}}
{{- with .of.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .of.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{ include "leman.spread" . }}
affinity:
{{- if .of.affinity }}
  {{- toYaml .of.affinity | nindent 2 }}
{{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{ include "leman.selector" . | nindent 14 }}
{{- end }}
{{- end }}

{{- define "leman.ports" -}}
- {name: grpc, containerPort: 7443}
{{- if .Values.metrics.port }}
- {name: metrics, containerPort: {{ .Values.metrics.port }}}
{{- end }}
{{- end }}
