// A job's card in a page and in a Hello, as tests write and read it.
//
// Threading: the caller's.
#pragma once

#include <cstdio>

#include "switchyard/abi.h"

namespace switchyard {

inline JobCard card_in(const CardText& text) {
  JobCard card{};
  read_card_text(text, card);
  return card;
}

// One setting; the others stay.
template <std::size_t kCapacity>
void write_card(CardText& text, char (JobCard::*field)[kCapacity], const char* value) {
  JobCard card = card_in(text);
  std::snprintf(card.*field, kCapacity, "%s", value);
  write_card_text(card, text);
}
template <std::size_t kCapacity>
void write_card(abi::Page& page, char (JobCard::*field)[kCapacity], const char* value) {
  write_card(page.card.text, field, value);
}

}  // namespace switchyard
