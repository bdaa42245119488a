{"prompt": [0, 1, 2], "why": ["", "", ""], "prompts": ["Write BUTTER on the sign.", "Now write FLOUR.", "A square"]}
