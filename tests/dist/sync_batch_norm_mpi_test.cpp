// The bodies of sync_batch_norm_test, with ranks as processes: run by mpirun, once per world size.
#include "tests/support/mpi_main.h"
#include "tests/support/sync_batch_norm_cases.h"

namespace athanor::sync_batch_norm_mpi_test {

TEST(MpiSyncBatchNorm, EqualsOneRankOnTheJoinedBatch) {
  test::check_join_equals_one_rank(test::mpi_transport());
}
TEST(MpiSyncBatchNorm, Gradients) {
  test::check_join_gradients(test::mpi_transport());
}
TEST(MpiSyncBatchNorm, OneValueOverAllRanksIsRefused) {
  test::check_one_sample_is_refused(test::mpi_transport());
}
TEST(MpiSyncBatchNorm, TrainingEqualsOneRankOnTheJoinedBatch) {
  for (const dist::Overlap overlap : {dist::Overlap::none, dist::Overlap::pumped, dist::Overlap::thread})
    test::check_training_equals_one_rank<dist::Ddp>(test::mpi_transport(), true, overlap);
}
TEST(MpiSyncBatchNorm, RealTrainingEqualsOneRankOnTheJoinedBatch) {
  test::check_training_equals_one_rank<dist::Ddp>(test::mpi_transport(), false);
}

}  // namespace athanor::sync_batch_norm_mpi_test
