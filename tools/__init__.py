"""Scripts that the Makefile and the tests of the source tree use."""
