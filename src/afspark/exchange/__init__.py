"""The exchange of models inside a batch: workers push what they have learned, and pull the model that all have made."""
