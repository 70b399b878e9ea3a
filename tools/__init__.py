"""What the Makefile and the tests of the tree itself use."""
