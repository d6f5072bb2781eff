"""From text to records; knows neither models nor training."""
