// An exported function that jumps through a slot of ours.
//
// Concept. A C function whose signature is taken from a header by decltype can't be defined under
// its own name. An ifunc makes glibc print "Relink ..." when a library that is relocated before us
// binds to it. So the exported symbol is one jump, and what it jumps to stands in a constant.
//
// Threading: none, constant data.
#pragma once

// entry: what `name` does, a constant expression of type decltype(&::name). At the global scope.
#define SWITCHYARD_EXPORT(name, entry)                                     \
  extern "C" __attribute__((visibility("hidden"), used)) decltype(&::name) \
      const switchyard_slot_##name = entry;                                \
  asm(".pushsection .text\n"                                               \
      ".globl " #name                                                      \
      "\n"                                                                 \
      ".type " #name                                                       \
      ", @function\n"                                                      \
      ".p2align 4\n" #name                                                 \
      ":\n"                                                                \
      "endbr64\n"                                                          \
      "jmp *switchyard_slot_" #name                                        \
      "(%rip)\n"                                                           \
      ".size " #name ", .-" #name                                          \
      "\n"                                                                 \
      ".popsection\n");
