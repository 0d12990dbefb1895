{{/* The name of everything: the release, with the chart if the release has another name. */}}
{{- define "headpond.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}
{{- end }}

{{/* The labels that select the pods of a part: node, nats or http. */}}
{{- define "headpond.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "headpond.labels" -}}
{{ include "headpond.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{/* The domain of the nodes' pods: pod NAME-0 is at NAME-0.DOMAIN. */}}
{{- define "headpond.domain" -}}
{{ include "headpond.name" . }}-nodes.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{- define "headpond.scheme" -}}
{{ if .Values.tls.secret }}headponds{{ else }}headpond{{ end }}
{{- end }}

{{/* The URL for clients inside the Kubernetes cluster: every node. */}}
{{- define "headpond.url" -}}
{{- $places := list }}
{{- range $number := until (int .Values.nodes) }}
{{- $places = append $places (printf "%s-%d.%s:7411" (include "headpond.name" $) $number (include "headpond.domain" $)) }}
{{- end }}
{{- printf "%s://%s" (include "headpond.scheme" .) (join "," $places) }}
{{- end }}

{{/* The Secret whose key `url` is the address of NATS. */}}
{{- define "headpond.natsSecret" -}}
{{ .Values.nats.urlSecret | default (printf "%s-nats" (include "headpond.name" .)) }}
{{- end }}

{{/* Pods of one part on different machines; proxies only if there are enough. */}}
{{- define "headpond.apart" -}}
podAntiAffinity:
  {{- if and .root.Values.separateMachines (ne .part "http") }}
  requiredDuringSchedulingIgnoredDuringExecution:
    - topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels:
          {{- include "headpond.selector" . | nindent 10 }}
  {{- else }}
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "headpond.selector" . | nindent 12 }}
  {{- end }}
{{- end }}
