"""Fine-tuning tasks: data, model, scores and exports."""
