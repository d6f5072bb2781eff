"""Tasks that a model is fine-tuned for: data, model, scores, exports."""
