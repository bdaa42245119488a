{
 "prompt": [0, 0, 0, 0],
 "why": [
  "grade, unmeasured: extra: no scale in the image\nnothing to mend\neye: eye-1 has looked; other: other-1 has looked; third: third-1 has looked\neye-1 has looked\n1 of 1 wrong: Is it a kiosk? no, not yes\nThere is no window.\nsharp 3.5, tidy 2",
  "grade, unmeasured: look: too dark to measure\neye: eye-1 has looked; other: other-1 has looked; third: third-1 has looked\neye-1 has looked\nNot shown: sign. There is no window. There is no door.\nsharp is null",
  "generate, invalid: the model is on fire",
  "grade, unmeasured: look: too dark to measure\neye: eye-1 has looked; other: other-1 has looked; third: third-1 has looked\neye-1 has looked\n1 of 1 wrong: Is it a kiosk? no, not yes\nNot shown: sign. There is no door.\nsharp is null"
 ],
 "prompts": ["A kiosk"]
}
