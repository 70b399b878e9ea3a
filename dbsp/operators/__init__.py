"""Physical operators, one file each: frozen values that compute the change of their output from the changes of their inputs."""
