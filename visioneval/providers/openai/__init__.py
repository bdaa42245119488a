"""The OpenAI provider: images, edits and judges, by the Images, Responses and Chat APIs."""
