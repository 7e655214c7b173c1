// The list of providers' tables.
// SPDX-License-Identifier: BSL-1.0
#include "tables.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace dat_registry {
namespace {

/// Whether a provider has all functions. Its name and data come before them.
bool is_complete(const DAT_PROVIDER& table) noexcept {
  std::array<void*, sizeof table / sizeof(void*)> words;
  std::memcpy(words.data(), &table, sizeof table);
  return std::find(words.begin() + 2, words.end(), nullptr) == words.end();
}

} // namespace

// Constant-initialised and never destroyed, so that other libraries' destructors may call.
constinit provider_tables tables;

// The caller holds the lock of the providers.
void provider_tables::insert(const DAT_PROVIDER* table) {
  if (has(table)) return;
  for (node* n = first_.load(std::memory_order_relaxed); n; n = n->next) {
    if (n->table.load(std::memory_order_relaxed)) continue;
    n->table.store(table, std::memory_order_release);
    return;
  }
  first_.store(new node{table, first_.load(std::memory_order_relaxed)}, std::memory_order_release);
}

// The caller holds the lock of the providers.
void provider_tables::erase(const DAT_PROVIDER* table) noexcept {
  for (node* n = first_.load(std::memory_order_relaxed); n; n = n->next)
    if (n->table.load(std::memory_order_relaxed) == table) n->table.store(nullptr, std::memory_order_relaxed);
  for (auto& recent : recent_) recent.store(&none, std::memory_order_relaxed);
}

bool provider_tables::search(const DAT_PROVIDER* table) noexcept {
  for (const node* n = first_.load(std::memory_order_acquire); n; n = n->next) {
    if (n->table.load(std::memory_order_acquire) != table) continue;
    if (is_complete(*table))
      recent_[1].store(recent_[0].exchange(table, std::memory_order_relaxed), std::memory_order_relaxed);
    return true;
  }
  return false;
}

} // namespace dat_registry
