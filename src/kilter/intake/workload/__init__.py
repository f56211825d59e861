"""What tells of a job: model configurations, launch lines, serving commands, kilter's own workload file."""
