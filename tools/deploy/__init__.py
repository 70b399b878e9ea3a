"""The image, compose file, systemd unit, Kubernetes manifests and dashboard that deploy a pipeline."""
