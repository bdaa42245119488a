"""Graders by name."""

from __future__ import annotations

GRADERS = {
    "rubric": "visioneval.graders.rubric:Rubric",
    "alignment": "visioneval.graders.alignment:Alignment",
    "gecko": "visioneval.graders.gecko:Gecko",
    "text": "visioneval.graders.text:Text",
    "locality": "visioneval.graders.locality:Locality",
    "reference": "visioneval.graders.reference:Reference",
    "image": "visioneval.graders.image:ImageFile",
}
