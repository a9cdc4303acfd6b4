"""What a configuration costs in time: by an analytic model, by a model fitted to measurements, and as measured."""
