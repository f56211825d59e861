"""What is set already: variables and flags of scripts, batch files, images, manifests and logs, judged for one version."""
