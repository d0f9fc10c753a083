"""The HTTP edge: routes, replies, problems and the OpenAPI document."""
