// Finding, loading, counting and removing providers.
// SPDX-License-Identifier: BSL-1.0
#include "providers.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <span>
#include <utility>

namespace dat_registry {

namespace {

std::string_view name_of(const DAT_PROVIDER_INFO& info) noexcept {
  return {info.ia_name, ::strnlen(info.ia_name, sizeof info.ia_name)};
}

bool same(const DAT_PROVIDER_INFO& a, const DAT_PROVIDER_INFO& b) noexcept {
  return name_of(a) == name_of(b) && a.dapl_version_major == b.dapl_version_major &&
         a.dapl_version_minor == b.dapl_version_minor &&
         (a.is_thread_safe == DAT_FALSE) == (b.is_thread_safe == DAT_FALSE);
}

DAT_PROVIDER_INFO info_of(const key& k) noexcept {
  DAT_PROVIDER_INFO info{};
  k.name.copy(info.ia_name, sizeof info.ia_name - 1);
  info.dapl_version_major = k.major_version;
  info.dapl_version_minor = k.minor_version;
  info.is_thread_safe = k.thread_safe ? DAT_TRUE : DAT_FALSE;
  return info;
}

key key_of(const DAT_PROVIDER_INFO& info) {
  return {std::string(name_of(info)), static_cast<std::uint16_t>(info.dapl_version_major),
          static_cast<std::uint16_t>(info.dapl_version_minor), info.is_thread_safe != DAT_FALSE};
}

DAT_RETURN_SUBTYPE subtype_of(missing what) noexcept {
  switch (what) {
  case missing::major_version:
    return DAT_MAJOR_NOT_FOUND;
  case missing::minor_version:
    return DAT_MINOR_NOT_FOUND;
  case missing::thread_safety:
    return DAT_THREAD_SAFETY_NOT_FOUND;
  case missing::nothing:
  case missing::name:
    break;
  }
  return DAT_NAME_NOT_REGISTERED;
}

// A provider that does not name this library as needed finds its symbols only where they are global, and a program may
// have loaded this library with local symbols.
void make_symbols_global() noexcept {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&make_symbols_global), &self) != 0 && self.dli_fname)
    (void)::dlopen(self.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

const char* last_error() noexcept {
  const char* text = ::dlerror();
  return text ? text : "unknown error";
}

} // namespace

void note(const std::string& text) noexcept {
  const char* level = ::secure_getenv("DAT_DBG_LEVEL");
  if (level && std::strtoul(level, nullptr, 0) != 0) (void)std::fprintf(stderr, "dat registry: %s\n", text.c_str());
}

providers& providers::instance() {
  static auto* const all = new providers; // never destroyed: threads of providers may call during exit
  return *all;
}

DAT_RETURN providers::add(const DAT_PROVIDER* table, const DAT_PROVIDER_INFO* info) {
  if (!table) return failure(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
  const std::size_t length = info ? name_of(*info).size() : 0;
  if (length == 0 || length == sizeof info->ia_name || info->dapl_version_major > UINT16_MAX ||
      info->dapl_version_minor > UINT16_MAX)
    return failure(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  const std::lock_guard lock(lock_);
  library* const from = loader_ == std::this_thread::get_id() ? loading_now_ : nullptr;
  if (from && name_of(*info) != name_of(from->info)) {
    note("a library that was loaded for " + std::string(name_of(from->info)) + " adds " + std::string(name_of(*info)));
    return failure(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  }
  if (find(*info)) return failure(DAT_PROVIDER_ALREADY_REGISTERED);
  auto added = std::make_shared<provider>();
  added->info = *info;
  added->table = table;
  added->from = from;
  providers_.push_back(std::move(added));
  tables.insert(table);
  return DAT_SUCCESS;
}

DAT_RETURN providers::remove(const DAT_PROVIDER* table, const DAT_PROVIDER_INFO* info) {
  const std::lock_guard lock(lock_);
  for (const provider_ref& p : providers_) {
    if (!table || p->table != table || (info && !same(p->info, *info))) continue;
    if (p->opens > 0) return failure(DAT_PROVIDER_IN_USE);
    drop(provider_ref(p));
    return DAT_SUCCESS;
  }
  return failure(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
}

void providers::drop(const provider_ref& p) noexcept {
  std::erase(providers_, p);
  const bool used = std::any_of(providers_.begin(), providers_.end(), [&](auto& q) { return q->table == p->table; });
  if (!used) tables.erase(p->table);
}

std::vector<key> providers::keys() const {
  std::vector<key> all;
  all.reserve(providers_.size());
  for (const provider_ref& p : providers_) all.push_back(key_of(p->info));
  return all;
}

DAT_RETURN providers::list(DAT_COUNT room, DAT_COUNT* number, DAT_PROVIDER_INFO** to) {
  if (!number) return failure(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  *number = 0;
  std::vector<key> all;
  {
    const std::lock_guard lock(lock_);
    all = keys();
  }
  all = dat_registry::list(all);
  *number = static_cast<DAT_COUNT>(all.size());
  if (all.empty() && !has_conf()) return failure(DAT_INTERNAL_ERROR); // §8.2.2.1: the static registry is missing
  if (room < *number) return failure(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
  if (!to) return failure(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  const std::span<DAT_PROVIDER_INFO* const> places(to, all.size());
  for (const DAT_PROVIDER_INFO* place : places)
    if (!place) return failure(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  for (std::size_t i = 0; i < all.size(); ++i) *places[i] = info_of(all[i]);
  return DAT_SUCCESS;
}

provider_ref providers::find(const DAT_PROVIDER_INFO& info) const noexcept {
  for (const provider_ref& p : providers_)
    if (same(p->info, info)) return p;
  return nullptr;
}

DAT_RETURN providers::acquire(std::string_view name, const request& wanted, provider_ref& to) {
  const std::lock_guard loading(loading_);
  std::vector<key> added;
  {
    const std::lock_guard lock(lock_);
    added = keys();
  }
  std::vector<std::string> remarks;
  const found best = dat_registry::find(added, name, wanted, remarks);
  if (best.what != missing::nothing) {
    for (const std::string& remark : remarks) note(remark);
    note("no provider for " + std::string(name));
    return failure(DAT_PROVIDER_NOT_FOUND, subtype_of(best.what));
  }
  const auto take = [&] {
    const std::lock_guard lock(lock_);
    to = find(info_of(best.provider));
    if (to) ++to->opens;
    return to != nullptr;
  };
  if (take()) return DAT_SUCCESS;
  load(best);
  return take() ? DAT_RETURN{DAT_SUCCESS} : failure(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
}

// Loads the library of an entry of dat.conf and lets it add its provider. If that fails, the provider is not there.
void providers::load(const found& entry) {
  const DAT_PROVIDER_INFO info = info_of(entry.provider);
  const std::string line = entry.where + ": ";
  make_symbols_global();
  void* const handle = ::dlopen(entry.library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) return note(line + last_error());
  const auto init = reinterpret_cast<DAT_PROVIDER_INIT_FUNC>(::dlsym(handle, DAT_PROVIDER_INIT_FUNC_STR));
  if (!init) {
    note(line + last_error());
    ::dlclose(handle);
    return;
  }
  library* lib = nullptr;
  library* outer = nullptr; // which opens this one while it is loaded itself
  {
    const std::lock_guard lock(lock_);
    const auto known = std::find_if(libraries_.begin(), libraries_.end(), [&](const library& l) {
      return l.handle == handle && same(l.info, info) && l.instance_data == entry.instance_data;
    });
    if (known == libraries_.end()) {
      const auto fini = reinterpret_cast<DAT_PROVIDER_FINI_FUNC>(::dlsym(handle, DAT_PROVIDER_FINI_FUNC_STR));
      libraries_.push_back({handle, fini, info, entry.instance_data});
    } else {
      libraries_.splice(libraries_.end(), libraries_, known);
      ::dlclose(handle); // known already
    }
    lib = &libraries_.back();
    outer = std::exchange(loading_now_, lib);
    loader_ = std::this_thread::get_id();
  }
  {
    const outside provider;
    init(&lib->info, lib->instance_data.c_str());
  }
  const std::lock_guard lock(lock_);
  loading_now_ = outer;
  if (!find(info)) note(line + entry.library + " did not add its provider");
}

void providers::release(const provider_ref& p) noexcept {
  const std::lock_guard loading(loading_);
  const library* from = nullptr;
  {
    const std::lock_guard lock(lock_);
    if (--p->opens > 0 || std::find(providers_.begin(), providers_.end(), p) == providers_.end()) return;
    from = p->from;
  }
  if (!from) return;
  if (from->fini) {
    const outside provider;
    from->fini(&from->info);
  }
  const std::lock_guard lock(lock_);
  if (p->opens == 0) drop(p); // §8.2.4.2: the registry may remove what fini leaves
}

void providers::opened(DAT_IA_HANDLE ia, const provider_ref& p, opened_by how) {
  const std::lock_guard lock(lock_);
  const DAT_PROVIDER* table = p->table;
  // A provider may have a separate table for each adapter.
  if (how == opened_by::open) table = *static_cast<const DAT_PROVIDER* const*>(ia);
  tables.insert(table);
  adapters_.insert_or_assign(ia, adapter{p, table, how, ++ids_});
}

const DAT_PROVIDER* providers::table_of(DAT_IA_HANDLE ia) noexcept {
  const inside here;
  const std::lock_guard lock(lock_);
  const auto at = adapters_.find(ia);
  return at != adapters_.end() && at->second.how == opened_by::open ? at->second.table : nullptr;
}

DAT_IA_HANDLE providers::adapter_of(std::string_view name) noexcept {
  const std::lock_guard lock(lock_);
  for (const auto& [ia, a] : adapters_)
    if (a.how == opened_by::open && !a.closing && name_of(a.of->info) == name) return ia;
  return nullptr;
}

adapter providers::closing(DAT_IA_HANDLE ia, opened_by how) noexcept {
  const std::lock_guard lock(lock_);
  const auto at = adapters_.find(ia);
  if (at == adapters_.end() || at->second.how != how || at->second.closing) return {};
  at->second.closing = true;
  return at->second;
}

void providers::closed(DAT_IA_HANDLE ia, const adapter& a, bool gone) noexcept {
  {
    const std::lock_guard lock(lock_);
    const auto at = adapters_.find(ia);
    const bool mine = at != adapters_.end() && at->second.id == a.id;
    if (mine && gone) adapters_.erase(at);
    if (mine && !gone) at->second.closing = false;
  }
  if (gone) release(a.of);
}

} // namespace dat_registry
