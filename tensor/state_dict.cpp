#include "tensor/state_dict.h"

#include <algorithm>

#include "tensor/base/nearest.h"

namespace athanor {

void StateDict::set(std::string name, Value value) {
  ATH_CHECK(!name.empty(), "state_dict: a name must not be empty");
  ATH_CHECK(!contains(name), "state_dict: names must be unique, but got '{}' twice", name);
  const Tensor* tensor = std::get_if<Tensor>(&value);
  ATH_CHECK(!tensor || tensor->defined(), "state_dict: '{}' must be a defined tensor", name);
  index_.emplace(name, entries_.size());
  entries_.push_back({std::move(name), std::move(value)});
  used_.push_back(false);
}

void StateDict::set_all(std::string_view prefix, const StateDict& other) {
  for (const Entry& entry : other) set(fmt::format("{}{}", prefix, entry.name), entry.value);
}

const StateDict::Value* StateDict::find(std::string_view name) const {
  const auto at = index_.find(name);
  return at == index_.end() ? nullptr : &entries_[at->second].value;
}

const StateDict::Value& StateDict::use(std::string_view name, std::string_view wanted) const {
  const auto at = index_.find(name);
  ATH_CHECK(at != index_.end(), "state_dict: '{}' ({}) is missing{}", name, wanted,
            did_you_mean(name, names()));
  used_[at->second] = true;
  return entries_[at->second].value;
}

template <class T> const T& StateDict::get(std::string_view name, std::string_view wanted) const {
  const Value& value = use(name, wanted);
  const T* typed = std::get_if<T>(&value);
  ATH_CHECK(typed, "state_dict: '{}' must be {}, but is {}", name, wanted, kind_of(value));
  return *typed;
}

const Tensor& StateDict::tensor(std::string_view name) const {
  return get<Tensor>(name, "a tensor");
}

const Tensor& StateDict::tensor(std::string_view name, const Shape& shape) const {
  const Tensor& value = tensor(name);
  ATH_CHECK(value.shape() == shape, "state_dict: '{}' must have shape {}, but has {}", name, shape,
            value.shape());
  return value;
}

const ShardedTensor& StateDict::sharded(std::string_view name) const {
  return get<ShardedTensor>(name, "a shard of a tensor");
}

std::int64_t StateDict::integer(std::string_view name) const {
  return get<std::int64_t>(name, "an integer");
}

double StateDict::real(std::string_view name) const {
  return get<double>(name, "a real number");
}

const std::string& StateDict::text(std::string_view name) const {
  return get<std::string>(name, "a string");
}

StateDict StateDict::under(std::string_view prefix) const {
  StateDict part;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.name.size() <= prefix.size() || !entry.name.starts_with(prefix)) continue;
    part.set(entry.name.substr(prefix.size()), entry.value);
    used_[i] = true;
  }
  return part;
}

StateDict StateDict::picked(const std::vector<std::string>& names) const {
  StateDict part;
  for (const std::string& name : names) {
    const auto found = index_.find(name);
    if (found == index_.end()) continue;
    part.set(name, entries_[found->second].value);
    used_[found->second] = true;
  }
  return part;
}

bool StateDict::contains_prefix(std::string_view prefix) const {
  return std::any_of(begin(), end(), [&](const Entry& entry) { return entry.name.starts_with(prefix); });
}

void StateDict::require_all_used(std::string_view who) const {
  std::vector<std::string> extra;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!used_[i]) extra.push_back(entries_[i].name);
  }
  ATH_CHECK(extra.empty(), "{}: every entry must be known, but got unknown entries: {}", who,
            list_names(extra));
}

std::vector<std::string> StateDict::names() const {
  std::vector<std::string> names;
  names.reserve(size());
  for (const Entry& entry : entries_) names.push_back(entry.name);
  return names;
}

std::string_view kind_of(const StateDict::Value& value) {
  constexpr std::string_view kKinds[] = {"a tensor", "an integer", "a real number", "a string",
                                         "a shard of a tensor"};
  return kKinds[value.index()];
}

std::string list_names(const std::vector<std::string>& names, std::size_t most) {
  std::string text;
  const std::size_t shown = std::min(most, names.size());
  for (std::size_t i = 0; i < shown; ++i) text += fmt::format("{}'{}'", i ? ", " : "", names[i]);
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace athanor
