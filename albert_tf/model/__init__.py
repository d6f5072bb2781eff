"""The model: functions of tensors, which read no file except the config."""
