// The bodies of data_parallel_test, with ranks as processes: run by mpirun, once per world size.
#include "tests/support/data_parallel_cases.h"
#include "tests/support/mpi_main.h"

namespace athanor::data_parallel_mpi_test {

TEST(MpiTraining, ZeroOneEqualsDdpBitForBit) {
  test::check_zero1_equals_ddp(test::mpi_transport());
}
TEST(MpiTraining, AnyThreadMayAdvanceBuckets) {
  test::check_overlap_changes_nothing(test::mpi_transport());
}
TEST(MpiTraining, DdpEqualsOneRankOnTheJoinedBatch) {
  test::check_ddp_equals_one_rank(test::mpi_transport());
}
TEST(MpiTraining, AccumulationEqualsOneRankOnTheJoinedBatch) {
  test::check_accumulation_equals_one_rank(test::mpi_transport());
}
// Sums of whole numbers, which are exact in any order, by MPI's own collectives.
TEST(MpiTraining, NativeEqualsOneRankOnTheJoinedBatch) {
  test::check_accumulation_with(test::mpi_transport(), {.algorithm = dist::Algorithm::native}, {});
}
TEST(MpiTraining, UnusedParametersJoinWithZeros) {
  test::check_unused_parameters(test::mpi_transport());
}
TEST(MpiTraining, RanksStartWithEqualWeights) {
  test::check_ranks_begin_alike(test::mpi_transport());
}

}  // namespace athanor::data_parallel_mpi_test
