"""The Grafana dashboard, and the script that makes it."""
