{
 "prompt": [0, 0, 0, 0],
 "why": [
  "grade, unmeasured: extra: no scale in the image · nothing to mend · eye: eye-1 has looked; other: other-1 has looked; third: third-1 has looked · eye-1 has looked · 1 of 1 wrong: Is it a kiosk? no, not yes · There is no window. · sharp 3.5, tidy 2",
  "grade, unmeasured: look: too dark to measure · eye: eye-1 has looked; other: other-1 has looked; third: third-1 has looked · eye-1 has looked · Not shown: sign. There is no window. There is no door. · sharp is null",
  "generate, invalid: the model is on fire",
  "grade, unmeasured: look: too dark to measure · eye: eye-1 has looked; other: other-1 has looked; third: third-1 has looked · eye-1 has looked · 1 of 1 wrong: Is it a kiosk? no, not yes · Not shown: sign. There is no door. · sharp is null"
 ],
 "prompts": ["A kiosk"]
}
