"""The Gemini provider: images, edits and judges, on the Developer API and Vertex AI."""
