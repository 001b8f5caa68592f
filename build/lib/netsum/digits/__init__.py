"""The demo: workers teach a small neural network handwritten digits, and the switch adds their gradients."""
