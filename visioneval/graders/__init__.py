"""Graders: each folder holds one grader with its options (``config``), its checks and its work.

``config`` and ``checks`` import the suite and below only; the work may import ``judging`` and the protocols of
providers, and never an engine or a concrete provider.
"""

from __future__ import annotations

GRADERS = {
    "rubric": "visioneval.graders.rubric.grader:Rubric",
    "alignment": "visioneval.graders.alignment.grader:Alignment",
    "gecko": "visioneval.graders.gecko.grader:Gecko",
    "text": "visioneval.graders.text.grader:Text",
    "locality": "visioneval.graders.pixels.locality:Locality",
    "reference": "visioneval.graders.pixels.reference:Reference",
    "image": "visioneval.graders.properties.grader:ImageFile",
}
