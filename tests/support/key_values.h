#pragma once

#include <filesystem>
#include <map>
#include <string>

#ifdef ATHANOR_TEST_LMDB
#include <gtest/gtest.h>
#include <lmdb.h>

namespace athanor::test {

/// Writes an LMDB file with these values, as other programs do.
inline void write_key_values(const std::filesystem::path& path,
                             const std::map<std::string, std::string>& all) {
  std::filesystem::create_directories(path.parent_path());
  MDB_env* environment = nullptr;
  MDB_txn* transaction = nullptr;
  MDB_dbi database = 0;
  const auto view = [](const std::string& text) {
    return MDB_val{text.size(), const_cast<char*>(text.data())};
  };
  ASSERT_EQ(mdb_env_create(&environment), 0);
  ASSERT_EQ(mdb_env_open(environment, path.c_str(), MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOSYNC, 0666), 0);
  ASSERT_EQ(mdb_txn_begin(environment, nullptr, 0, &transaction), 0);
  ASSERT_EQ(mdb_dbi_open(transaction, nullptr, 0, &database), 0);
  for (const auto& [key, value] : all) {
    MDB_val key_view = view(key), value_view = view(value);
    ASSERT_EQ(mdb_put(transaction, database, &key_view, &value_view, 0), 0);
  }
  ASSERT_EQ(mdb_txn_commit(transaction), 0);
  mdb_env_close(environment);
}

}  // namespace athanor::test
#endif
