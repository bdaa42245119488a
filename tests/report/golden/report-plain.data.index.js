{
 "part": 40,
 "count": 3,
 "cases": ["sign/1", "sign/2", "square"],
 "models": ["mock"],
 "tags": ["edit", "shape"],
 "failureTags": [],
 "rules": [],
 "failures": [],
 "metrics": {
  "file": {"type": "bool", "range": null, "better": "higher"},
  "file.alpha": {"type": "bool", "range": null, "better": "higher"},
  "file.blank": {"type": "bool", "range": null, "better": "lower"},
  "file.size": {"type": "bool", "range": null, "better": "higher"},
  "file.format": {"type": "bool", "range": null, "better": "higher"},
  "shape": {"type": "bool", "range": null, "better": "higher"},
  "shape.size": {"type": "bool", "range": null, "better": "higher"},
  "shape.format": {"type": "bool", "range": null, "better": "higher"},
  "shape.blank": {"type": "bool", "range": null, "better": "lower"}
 },
 "cells": {
  "case": [0, 1, 2],
  "model": [0, 0, 0],
  "sample": [0, 0, 0],
  "tags": [[0], [0], [1]],
  "failureTags": [[], [], []],
  "rules": [[], [], []],
  "failures": [[], [], []],
  "refused": [],
  "disagreement": [],
  "verdict": "PPP",
  "gaps": [],
  "thumb": ["thumbs/HASH.webp", "thumbs/HASH.webp", "thumbs/HASH.webp"],
  "scores": {
   "file": [true, true, true],
   "file.alpha": ["", "", ""],
   "file.blank": [false, false, false],
   "file.size": ["", "", true],
   "file.format": ["", "", true],
   "shape": ["", "", true],
   "shape.size": ["", "", true],
   "shape.format": ["", "", true],
   "shape.blank": ["", "", false]
  }
 }
}
