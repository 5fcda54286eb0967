"""Networks beyond the multi-layer perceptron."""
