"""Labels of people, and the draws that chose what they label."""
